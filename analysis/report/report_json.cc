// A Report as JSON. The schema is docs/json.md, `analyze`, version 2.
#include <stepscope/analysis.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "report/critical_path_text.h"
#include "report/json_text.h"
#include "report/place_text.h"
#include "report/ranks_text.h"
#include "report/whole_run_text.h"
#include "words/conclusion.h"
#include "words/labels.h"

namespace stepscope {
namespace {

void WriteRun(const RunInfo& run, JsonText& json) {
  json.Key("run");
  json.Open('{');
  json.Field("name", run.name);
  json.Field("run_id", run.run_id);
  json.Field("cycle", run.cycle);
  json.Field("host", run.host);
  json.Field("rank", run.rank);
  json.Field("world_size", run.world_size);
  json.Field("producer", run.producer);
  json.Field("language", run.language);
  json.Field("source", run.source);
  json.Field("torch_version", run.torch_version);
  json.Field("cuda_version", run.cuda_version);
  json.Field("cpu_model", run.cpu_model);
  json.Field("usable_cores", run.usable_cores);
  json.Key("devices");
  json.Open('[');
  for (const Device& device : run.devices) json.Value(device.name);
  json.Close(']');
  json.Close('}');
}

void WriteMs(const char* key, const std::map<std::string, double>& ms,
             JsonText& json) {
  json.Key(key);
  json.Open('{');
  for (const auto& [name, value] : ms) json.Field(name, value);
  json.Close('}');
}

// Writes several members of the report's object: `steps`, the time splits,
// `phases_ms` and `replay`.
void WriteTimes(const Report& report, JsonText& json) {
  json.Key("steps");
  json.Open('{');
  json.Field("count", report.steps.count);
  json.Field("steady", report.steps.steady);
  json.Field("mean_ms", report.steps.mean_ms);
  json.Field("median_ms", report.steps.median_ms);
  json.Field("cov", report.steps.cov);
  json.Field("all_mean_ms", report.steps.all_mean_ms);
  json.Field("unprofiled_ms", report.steps.unprofiled_ms);
  json.Field("cost_estimated", report.steps.cost_estimated);
  json.Field("smallest_gain_ms", report.steps.smallest_gain_ms);
  json.Field("step_source", report.steps.step_source);
  json.Close('}');
  // Only recordings without steps have these keys, because their causes are
  // parts of the whole recording.
  if (report.recording_ms > 0) {
    json.Field("recording_ms", report.recording_ms);
    WriteMs("recording_split_ms", report.recording_split_ms, json);
  }
  WriteMs("time_split_ms", report.time_split_ms, json);
  json.Key("time_split_spread_ms");
  json.Open('{');
  for (const auto& [cause, spread] : report.time_split_spread_ms) {
    json.Key(cause);
    json.Open('[');
    json.Value(spread.least);
    json.Value(spread.most);
    json.Close(']');
  }
  json.Close('}');
  WriteMs("path_split_ms", report.path_split_ms, json);
  WriteMs("phases_ms", report.phases_ms, json);
  json.Key("replay");
  json.Open('{');
  json.Field("steps", report.replay.steps);
  json.Field("no_edit_error", report.replay.no_edit_error);
  json.Field("limit_error", report.replay.limit_error);
  json.Field("valid", report.replay.valid);
  json.Field("why_not", report.replay.why_not);
  json.Close('}');
}

void WriteSettings(const std::vector<Setting>& settings, JsonText& json) {
  json.Key("settings");
  json.Open('{');
  for (const Setting& setting : settings) {
    std::visit([&](const auto& value) { json.Field(setting.key, value); },
               setting.value);
  }
  json.Close('}');
}

void WriteSteps(const Report& report, JsonText& json) {
  json.Key("step_times");
  json.Open('[');
  for (const StepTimes& step : report.step_times) {
    json.Open('{');
    json.Field("step", step.number);
    json.Field("kind", step.kind);
    json.Field("ms", step.ms);
    json.Field("why", step.why);
    WriteMs("time_split_ms", step.time_split_ms, json);
    json.Close('}');
  }
  json.Close(']');
  json.Key("memory_peaks");
  json.Open('[');
  for (const MemorySummary& memory : report.memory) {
    json.Open('{');
    json.Field("device", memory.device);
    json.Field("step", memory.step);
    json.Field("peak_bytes", memory.peak_bytes);
    json.Field("reserved_bytes", memory.reserved_bytes);
    json.Field("op", memory.op);
    json.Field("counted", memory.is_counted);
    json.Close('}');
  }
  json.Close(']');
}

// The step that the gain refers to; null without a gain.
void WriteBaseline(const Report& report, const Finding& finding,
                   JsonText& json) {
  json.Key("baseline_ms");
  if (finding.gain_kind == GainKind::kNone) {
    json.Null();
  } else {
    json.Value(BaselineMs(report, finding));
  }
}

void WriteFinding(const Report& report, const Finding& finding,
                  JsonText& json) {
  json.Open('{');
  json.Field("id", finding.id);
  json.Field("status", StatusName(finding.status));
  json.Field("severity", SeverityName(finding.severity));
  json.Field("confidence", ConfidenceName(finding.confidence));
  json.Key("gain_ms_per_step");
  json.Open('{');
  json.Field("expected", finding.gain.expected_ms);
  json.Field("low", finding.gain.low_ms);
  json.Field("high", finding.gain.high_ms);
  json.Field("pairs", finding.gain.pairs);
  json.Close('}');
  json.Field("gain_kind", GainName(finding.gain_kind));
  WriteBaseline(report, finding, json);
  json.Field("speedup", finding.speedup);
  json.Field("evidence", finding.evidence);
  json.Key("examples");
  json.Open('[');
  for (const Example& example : finding.examples) {
    json.Open('{');
    json.Field("step", example.step);
    json.Field("begin_ns", example.begin_ns);
    json.Field("end_ns", example.end_ns);
    json.Field("what", example.what);
    json.Close('}');
  }
  json.Close(']');
  json.Field("where", finding.where);
  json.Field("assumption", finding.assumption);
  json.Key("fix");
  json.Open('{');
  json.Field("cpp", finding.fix_cpp);
  json.Field("python", finding.fix_python);
  json.Close('}');
  WriteSettings(finding.settings, json);
  json.Field("wrong_if", finding.wrong_if);
  json.Field("reference", finding.reference);
  json.Texts("also", finding.also);
  json.Close('}');
}

// What the rules did not find, did not look for, or could not see.
void WriteMissing(const Report& report, JsonText& json) {
  json.Texts("clean", report.clean);
  json.Key("skipped");
  json.Open('[');
  for (const SkippedRule& entry : report.skipped) {
    json.Open('{');
    json.Field("id", entry.id);
    json.Field("why", entry.why);
    json.Close('}');
  }
  json.Close(']');
  json.Texts("superseded", report.superseded);
  json.Key("losses");
  json.Open('[');
  for (const Loss& loss : report.losses) {
    json.Open('{');
    json.Field("name", loss.name);
    json.Field("severity", SeverityName(loss.severity));
    json.Field("count", loss.count);
    json.Field("detail", loss.detail);
    json.Close('}');
  }
  json.Close(']');
}

void WritePlan(const Plan& plan, JsonText& json) {
  json.Key("plan");
  json.Open('{');
  json.Texts("ids", plan.ids);
  json.Texts("at_most", plan.at_most);
  json.Texts("order", plan.order);
  json.Texts("changes", plan.changes);
  WriteSettings(plan.settings, json);
  json.Field("step_before_ms", plan.step_before_ms);
  json.Field("step_after_ms", plan.step_after_ms);
  json.Texts("after_each_ms", plan.after_each_ms);
  json.Field("low_ms", plan.low_ms);
  json.Field("high_ms", plan.high_ms);
  json.Field("pairs", plan.pairs);
  json.Field("assumption", plan.assumption);
  json.Close('}');
}

void WriteCoverage(const Report& report, JsonText& json) {
  json.Key("coverage");
  json.Open('[');
  for (const CauseAnswer& answer : report.coverage) {
    json.Open('{');
    json.Field("cause", answer.cause);
    json.Field("ms_per_step", answer.ms);
    json.Field("path_ms_per_step", answer.path_ms);
    json.Texts("ids", answer.ids);
    json.Texts("looked", answer.looked);
    json.Field("why", answer.why);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

std::string ToJson(const Report& report) {
  JsonText json;
  json.Open('{');
  json.Field("version", int32_t{2});
  WriteRun(report.run, json);
  json.Field("has_gpu", report.has_gpu);
  WriteTimes(report, json);
  json.Key("findings");
  json.Open('[');
  for (const Finding& finding : report.findings)
    WriteFinding(report, finding, json);
  json.Close(']');
  std::vector<std::string> held_back;
  for (const Finding* held : HeldBack(report)) held_back.push_back(held->id);
  json.Texts("held_back", held_back);
  WriteMissing(report, json);
  WritePlan(report.plan, json);
  WriteCoverage(report, json);
  json.Key("top_ops");
  json.Open('[');
  for (const TopOp& op : report.top_ops) {
    json.Open('{');
    json.Field("name", op.name);
    WriteFusedOps(op.name, json);
    json.Field("other_thread", op.other_thread);
    json.Field("self_ms_per_step", op.self_ms_per_step);
    json.Field("total_ms_per_step", op.total_ms_per_step);
    json.Field("gpu_self_ms_per_step", op.gpu_self_ms_per_step);
    json.Field("calls_per_step", op.calls_per_step);
    json.Close('}');
  }
  json.Close(']');
  WritePlaces(report, json);
  json.Key("critical_path");
  WriteCriticalPath(report, json);
  WriteSteps(report, json);
  // These keys are missing, not empty, for a single rank and for a run that was
  // not timed as a whole.
  if (!report.ranks.rows.empty()) WriteRanks(report.ranks, json);
  if (report.whole_run.steps > 0) WriteWholeRun(report.whole_run, json);
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
