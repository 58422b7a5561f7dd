#include "report/page/page_words.h"

#include <stepscope/version.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "report/compare_words.h"
#include "report/step_text.h"
#include "report/whole_run_text.h"
#include "words/code.h"
#include "words/conclusion.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

std::string NameOfRun(const RunInfo& run) {
  if (!run.name.empty()) return run.name;
  const std::string file =
      std::filesystem::path(run.source).filename().string();
  return file.empty() ? "run" : file;
}

// A sentence about the first finding alone: "Up to 30.0 of 80.3 ms per step can
// be gained: start with fp64-compute." "Up to" is used only for a bound.
std::string FirstInWords(const Report& report) {
  for (const Finding& finding : report.findings) {
    if (NumberOf(report, finding) != 1 || IsQuestion(finding) ||
        finding.gain_kind == GainKind::kNone) {
      continue;
    }
    const std::string gain = Number(finding.gain.expected_ms) + " of " +
                             Milliseconds(BaselineMs(report, finding)) +
                             " per step";
    std::string text;
    if (finding.gain_kind == GainKind::kBound) {
      text = "Up to " + gain + " can be gained" +
             (finding.gain.pairs > 0
                  ? ", likely at least " + Number(finding.gain.low_ms)
                  : "") +
             ": ";
    } else {
      text = "One change is predicted to gain " + gain +
             (finding.gain.pairs > 0 ? " (likely " : " (roughly ") +
             Number(finding.gain.low_ms) + " to " +
             Number(finding.gain.high_ms) + "): ";
    }
    return text + "start with " + finding.id + ".";
  }
  return "";
}

// True if the first finding has only a bound, and that bound is worth more than
// the plan.
bool BeginsWithBound(const Report& report) {
  for (const Finding& finding : report.findings) {
    if (NumberOf(report, finding) != 1) continue;
    return finding.gain_kind == GainKind::kBound &&
           LikelyMs(finding) >
               report.plan.step_before_ms - report.plan.step_after_ms;
  }
  return false;
}

// Writes the words for the causes in `keys`.
void WriteCauses(const std::set<std::string>& keys, bool has_gpu,
                 JsonText& json) {
  json.Key("causes");
  json.Open('{');
  for (const std::string& key : keys) {
    json.Field(key, CauseInWords(key, has_gpu));
  }
  json.Close('}');
}

// All causes that the page's drawings may name, even if the mean step does not
// have them.
std::set<std::string> CauseKeys() {
  return {"compute",      "communication", "copy",      "kernel_latency",
          "graph_opaque", "dependency",    "sync",      "blocking_copy",
          "allocator",    "data",          "profiler",  "gc",
          "dispatch",     "host_code",     "contended", "unknown"};
}

}  // namespace

std::string HeadlineInWords(const Report& report) {
  // With a damaged recording, no gain is promised, whatever the plan says.
  if (std::ranges::any_of(report.findings, ShowsDamage)) {
    return VerdictInWords(report);
  }
  if (report.steps.count == 0) {
    const std::string first = FirstInWords(report);
    return NoStepsInWords(report) + (first.empty() ? "" : " " + first);
  }
  const Plan& plan = report.plan;
  if (!plan.ids.empty() && plan.step_after_ms > 0 && !BeginsWithBound(report)) {
    std::string text = Count(static_cast<int64_t>(plan.ids.size()), "change") +
                       (plan.ids.size() == 1 ? " is" : " are") +
                       " predicted to cut the step from " +
                       Number(plan.step_before_ms) + " to " +
                       Milliseconds(plan.step_after_ms) + ", " +
                       Factor(plan.step_before_ms / plan.step_after_ms);
    return text + PlanRangeInWords(plan) + ".";
  }
  const std::string first = FirstInWords(report);
  return first.empty() ? VerdictInWords(report) : first;
}

void WriteWords(const Report& report, JsonText& json) {
  // Sentences are made here, so that page, terminal and Markdown say the same;
  // the script only places them.
  json.Open('{');
  json.Field("stepscope", Version());
  json.Field("name", NameOfRun(report.run));
  json.Field("machine", MachineInWords(report));
  json.Field("rank", RankInWords(report.run));
  json.Field("headline", HeadlineInWords(report));
  json.Field("plan", PlanInWords(report));
  const std::string held = HeldBackInWords(report);
  const std::string missing = MissingSizesInWords(report);
  json.Field("held_back",
             held + (held.empty() || missing.empty() ? "" : " ") + missing);
  std::vector<std::string> notes;
  for (const std::string& note : {AveragedStepsText(report),
                                  UnprofiledText(report), StallsText(report)}) {
    if (!note.empty()) notes.push_back(note);
  }
  if (!report.steps.step_source.empty()) {
    notes.push_back("no step marks in the trace: steps inferred from " +
                    report.steps.step_source);
  }
  for (const std::string& line : WholeRunLines(report.whole_run)) {
    notes.push_back(line);
  }
  json.Texts("notes", notes);
  json.Texts("unanswered", UnansweredInWords(report));
  std::vector<std::string> gains;
  std::vector<int32_t> numbers, cpp_is_code, python_is_code;
  for (const Finding& finding : report.findings) {
    gains.push_back(GainInWords(report, finding));
    numbers.push_back(NumberOf(report, finding));
    cpp_is_code.push_back(IsCode(finding.fix_cpp) ? 1 : 0);
    python_is_code.push_back(IsCode(finding.fix_python) ? 1 : 0);
  }
  json.Texts("gains", gains);
  json.Texts("numbers", numbers);
  json.Texts("cpp_is_code", cpp_is_code);
  json.Texts("python_is_code", python_is_code);
  WriteCauses(CauseKeys(), report.has_gpu, json);
  json.Close('}');
}

void WriteWords(const Comparison& comparison, JsonText& json) {
  json.Open('{');
  json.Field("stepscope", Version());
  json.Key("verdict");
  json.Open('[');
  for (const VerdictLine& line : VerdictOf(comparison)) {
    json.Open('{');
    json.Field("label", line.label);
    json.Field("text", line.text);
    json.Close('}');
  }
  json.Close(']');
  std::set<std::string> keys = CauseKeys();
  for (const ComparedTime& cause : comparison.causes) keys.insert(cause.name);
  WriteCauses(keys, HasGpu(comparison), json);
  json.Close('}');
}

}  // namespace stepscope
