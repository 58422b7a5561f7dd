// A Comparison as JSON. The schema is docs/json.md, `compare`, version 2.
#include <stepscope/compare.h>

#include <string>
#include <vector>

#include "report/json_text.h"
#include "words/labels.h"

namespace stepscope {
namespace {

void WriteGain(const char* key, const Gain& gain, JsonText& json) {
  json.Key(key);
  json.Open('{');
  json.Field("expected", gain.expected_ms);
  json.Field("low", gain.low_ms);
  json.Field("high", gain.high_ms);
  json.Close('}');
}

void WriteSide(const char* key, const RunInfo& run, const StepSpread& spread,
               JsonText& json) {
  json.Key(key);
  json.Open('{');
  json.Field("source", run.source);
  json.Field("name", run.name);
  json.Field("steps", spread.steps);
  json.Field("mean_ms", spread.mean_ms);
  json.Field("median_ms", spread.median_ms);
  json.Field("step_ms", spread.step_ms);
  json.Field("min_ms", spread.min_ms);
  json.Field("max_ms", spread.max_ms);
  json.Field("batch_size", spread.batch_size);
  json.Close('}');
}

// Joins both doubts, because JSON has one key for them. The text prints them in
// different places.
std::string AllDoubts(const Comparison& c) {
  const bool both = !c.incomplete.empty() && !c.doubt.empty();
  return c.incomplete + (both ? "; " : "") + c.doubt;
}

void WriteRows(const char* key, const std::vector<ComparedTime>& rows,
               JsonText& json) {
  json.Key(key);
  json.Open('[');
  for (const ComparedTime& row : rows) {
    json.Open('{');
    json.Field("name", row.name);
    WriteFusedOps(row.name, json);
    json.Field("before_ms", row.before_ms);
    json.Field("after_ms", row.after_ms);
    json.Field("before_calls", row.before_calls);
    json.Field("after_calls", row.after_calls);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

std::string ToJson(const Comparison& comparison) {
  const Comparison& c = comparison;
  JsonText json;
  json.Open('{');
  json.Field("version", int32_t{2});
  WriteSide("before", c.before_run, c.before, json);
  WriteSide("after", c.after_run, c.after, json);
  json.Field("why_not", c.why_not);
  WriteGain("measured_ms", c.measured, json);
  json.Field("slow_steps_count", c.slow_steps_count);
  json.Field("batch_normalised", c.batch_normalised);
  json.Field("batch_scale", c.batch_scale);
  json.Field("significant", c.significant);
  json.Field("shared_ops_frac", c.shared_ops_frac);
  json.Field("doubt", AllDoubts(c));
  WriteGain("predicted_ms", c.predicted, json);
  json.Field("predicted_kind", GainName(c.predicted_kind));
  json.Texts("resolved_findings", c.resolved_findings);
  json.Texts("changed_settings", c.changed_settings);
  json.Texts("remaining_findings", c.remaining_findings);
  json.Texts("new_findings", c.new_findings);
  json.Texts("reduced_findings", c.reduced_findings);
  // Unlike in the text, times are as recorded: the reader multiplies the times
  // of `after` by batch_scale (docs/json.md).
  WriteRows("causes", c.causes, json);
  WriteRows("ops", c.ops, json);
  WriteRows("kernels", c.kernels, json);
  WriteRows("modules", c.modules, json);
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
