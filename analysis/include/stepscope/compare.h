// Compare: two Traces of one program, recorded before and after a change. Gives
// the measured gain and the gain that was predicted for the changes made.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// What one cause, operator or kernel takes per steady step, in both Traces.
struct ComparedTime {
  std::string name;
  double before_ms = 0;
  double after_ms = 0;
  double before_calls = 0;  // 0 for causes
  double after_calls = 0;
};

// Lengths of the steady steps of one Trace.
struct StepSpread {
  // 0: the Trace has no steps. Then mean_ms is the length of the recording if
  // all of it was taken as one step, and the rest is unset.
  int64_t steps = 0;
  double mean_ms = 0;
  double median_ms = 0;
  // What is compared: median_ms or, with Comparison::slow_steps_count, the mean
  // over all steps but warm-up.
  double step_ms = 0;
  double min_ms = 0;
  double max_ms = 0;
  int64_t batch_size = -1;  // samples per step; -1 if the loader is unknown
  double recording_ms = 0;  // part of mean_ms that recording cost; 0: unknown
  bool recording_estimated = false;  // recording_ms was not measured
};

// The predicted gain per step of one change by itself.
struct PredictedPart {
  std::string id;  // of its finding
  GainKind kind = GainKind::kNone;
  double expected_ms = 0;
};

struct Comparison {
  RunInfo before_run, after_run;
  StepSpread before, after;
  // expected_ms: step_ms before - step_ms after; positive means faster. low_ms
  // and high_ms: the 95 % bootstrap interval over the compared steps.
  Gain measured;
  // Slow steps (validation, checkpoints, pauses) recur in one of the Traces, so
  // that they are part of what is compared.
  bool slow_steps_count = false;
  // The batch sizes differ, and the times of the second Trace are normalised
  // to the batch size of the first.
  bool batch_normalised = false;
  // Batch size of the first Trace / batch size of the second. Times of the
  // second Trace multiplied by this are normalised to the batch size of the
  // first.
  double batch_scale = 1;
  bool significant = false;  // the interval of `measured` excludes 0

  // Ids of findings. Resolved: predicted a gain in the first Trace and are gone
  // in the second, so their advice counts as followed. Remaining: predict a
  // gain in both, or are only hidden in the second by another cause. New:
  // predict a gain only in the second.
  std::vector<std::string> resolved_findings;
  std::vector<std::string> remaining_findings;
  std::vector<std::string> new_findings;
  // Findings whose gain in the second Trace is less than half of their gain in
  // the first: their advice counts as followed, too.
  std::vector<std::string> reduced_findings;
  // Settings that differ, advised or not: "2 intra-op threads".
  std::vector<std::string> changed_settings;
  // The gain predicted from the first Trace for `resolved_findings`,
  // `reduced_findings` and `changed_settings` together; negative if a loss was
  // predicted. Never more than the step.
  GainKind predicted_kind = GainKind::kNone;
  Gain predicted;
  // If `predicted` is a bound for several findings: the gain of each one. They
  // may add up to more than `predicted`.
  std::vector<PredictedPart> predicted_parts;

  // Times as recorded, not multiplied by `batch_scale`. `causes` has all
  // causes; `ops` (by self time) and `kernels` have those that differ by at
  // least 0.5 % of the step. Largest difference first, at most 200 rows each.
  std::vector<ComparedTime> causes, ops, kernels;
  // The same by module: self time of its device work, or of its operators
  // where there is no device. Empty unless both Traces have modules.
  std::vector<ComparedTime> modules;
  // The share of the operators' self time that goes to operators found in both
  // Traces, 0 to 1: the smaller of the two Traces' shares. A small share means
  // two different programs. -1 without operators.
  double shared_ops_frac = -1;
  // Why the Traces may be of different programs or machines, as clauses; empty
  // if nothing suggests it.
  std::string doubt;
  // Which Trace lost events and how, as a clause; empty if neither did. If a
  // Trace lost events, findings are not compared and nothing is predicted.
  std::string incomplete;
  std::string why_not;  // why steps cannot be compared; empty if they can
};

// Never fails: where steps cannot be compared, `why_not` says why and only the
// runs and step spreads are filled. Deterministic. Threads: any number of calls
// may share const Traces.
Comparison Compare(const Trace& before, const Trace& after);

// The comparison for a terminal of `width` columns (at least 40), as Markdown,
// and as one JSON object (docs/json.md, version 2) with a trailing newline.
// Never fail.
std::string ToText(const Comparison& comparison, int width = 110);
std::string ToMarkdown(const Comparison& comparison);
std::string ToJson(const Comparison& comparison);

}  // namespace stepscope
