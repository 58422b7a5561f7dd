// Compare: two Traces of one program, before and after a change. What was
// predicted for the changes that were made stands beside what was measured.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Milliseconds per steady step in both Traces.
struct Changed {
  std::string name;
  double before_ms = 0;
  double after_ms = 0;
  double before_calls = 0;
  double after_calls = 0;
};

// The steady steps of one side.
struct StepSpread {
  int64_t steps = 0;
  double mean_ms = 0;
  double median_ms = 0;
  double min_ms = 0;
  double max_ms = 0;
  int64_t batch_size = -1;  // as the loader says; -1 unknown
};

struct Comparison {
  RunInfo before_run, after_run;
  StepSpread before, after;
  // The medians' difference, before - after, with the 95 % interval that
  // resampling the steps gives; per sample of the first batch where the batch
  // size changed.
  Gain measured;
  bool per_sample = false;
  bool certain = false;  // the interval leaves out 0

  // Findings of the first Trace that promised a gain and are gone in the
  // second: these changes were made.
  std::vector<std::string> made;
  // Settings that differ, whether advised or not: "2 intra-op threads".
  std::vector<std::string> changed;
  std::vector<std::string> remaining;         // promised then, and still there
  std::vector<std::string> appeared;          // promise a gain only now
  GainKind predicted_kind = GainKind::kNone;  // of all that were made together
  Gain predicted;                             // below 0: a loss was predicted

  std::vector<Changed> causes, ops, kernels;  // largest difference first
  // Of the own time of a trace's ops, the share in ops that the other has, too:
  // the smaller of the two; -1 without ops. Little of it means two programs.
  double shared_ops = -1;
  std::string why_not;  // why steps cannot be compared; empty if they can
};

Comparison Compare(const Trace& before, const Trace& after);

std::string ToText(const Comparison& comparison);
std::string ToMarkdown(const Comparison& comparison);
// One object, described in analysis/README.md.
std::string ToJson(const Comparison& comparison);

}  // namespace stepscope
