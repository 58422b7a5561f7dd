// Report: what the analysis concluded about one Trace, ready to print. Built by
// Analyze(); holds no pointer into the Trace, so it outlives it. Times are
// milliseconds per step unless a name says otherwise.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/summary.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stepscope {

enum class FindingStatus : uint8_t { kOk, kWarning, kError };
enum class FindingSeverity : uint8_t { kNote, kLow, kMedium, kHigh, kCritical };
enum class Confidence : uint8_t { kHint, kStrong, kProven };
enum class GainKind : uint8_t { kNone, kBound, kPredicted };

// Milliseconds per step won, with the range it likely lies in.
struct Gain {
  double expected_ms = 0;
  double low_ms = 0;
  double high_ms = 0;
};

// A few events that prove a finding.
struct Example {
  int64_t step = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::string what;  // op chain or range, and thread
};

// What a fix sets, for programs to read: {"workers", 1}. The keys stand in
// analysis/README.md.
struct Setting {
  std::string key;
  std::variant<bool, int64_t, double, std::string> value;
  bool operator==(const Setting&) const = default;
};

struct Finding {
  std::string id;  // "sync-data-loading"
  FindingStatus status = FindingStatus::kWarning;
  FindingSeverity severity = FindingSeverity::kNote;
  Confidence confidence = Confidence::kHint;
  GainKind gain_kind = GainKind::kNone;
  Gain gain;
  double baseline_ms = 0;  // the gain is of a step this long; 0: of the steady
                           // mean. What stalls single steps is spread over all
  double speedup = 0;      // step now / step with this fix alone (D7: in
                           // samples/s); 0 if no gain is claimed
  std::string evidence;    // one or two sentences with the measured numbers
  std::vector<Example> examples;  // at most 3
  std::string where;              // source line or op chain; may be empty
  std::string assumption;         // what the gain takes for granted
  std::string fix_cpp;
  std::string fix_python;
  std::vector<Setting> settings;  // the same; empty if it is no setting
  std::string wrong_if;           // what would prove this finding wrong
  std::string reference;          // guide and section
  // Of the waiting that the change removes, the share in which the device ran
  // nothing but collectives; 0 where replay knows better.
  double collectives_frac = 0;
};

struct SkippedRule {
  std::string id;
  std::string why;
};

// The shortest list of changes that buys the most time, replayed together.
struct Plan {
  std::vector<std::string> ids;      // in the order to apply
  std::vector<std::string> changes;  // what they set, in words: "1 loader
                                     // worker", "2 intra-op threads"
  std::vector<Setting> settings;     // the same, for programs
  double step_before_ms = 0;
  double step_after_ms = 0;
  double low_ms = 0;  // step after, likely range
  double high_ms = 0;
};

// One row of the table of top ops by self time.
struct TopOp {
  std::string name;
  double self_ms_per_step = 0;
  double total_ms_per_step = 0;
  double calls_per_step = 0;
};

// What the critical path runs through, summed per steady step.
struct PathPart {
  std::string category;  // a key of time_split_ms
  std::string name;      // the op, or the kernel or call; empty between ops
  double ms_per_step = 0;
};

// A stretch of the critical path, for drawing.
struct PathSlice {
  std::string category;
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct Spread {
  double least = 0;
  double most = 0;
};

struct StepStats {
  int64_t count = 0;   // steps in the window
  int64_t steady = 0;  // steps that were averaged
  double mean_ms = 0;
  double median_ms = 0;
  double cov = 0;           // coefficient of variation of the steady steps
  std::string step_source;  // what steps without marks are told by; else empty
  double all_mean_ms = 0;   // of all steps but warm-up: those that validate or
                            // save are in it
};

// One step of the window.
struct StepTimes {
  int64_t number = -1;
  std::string kind;  // "steady" is averaged; "warm-up", "validation",
                     // "checkpoint" and "slow" are not
  double ms = 0;
  std::map<std::string, double> time_split_ms = {};  // adds up to ms
};

// Whether replay reproduced the measured run; where `valid` is false every
// gain is a bound or none.
struct ReplayCheck {
  int64_t steps = 0;         // steady ones that are replayed: of many, a part
  double no_edit_error = 0;  // (replayed - measured) / measured
  double limit_error =
      0;  // the same with all device work shrunk to nothing; 0 on CPU-only runs
  bool valid = false;
  std::string why_not;  // empty when it speaks
};

// One rank beside the others of its run. Milliseconds per step.
struct RankRow {
  int32_t rank = -1;
  std::string source;  // the file
  double step_ms = 0;
  double noise_ms = 0;       // by which a mean of its steps strays by chance
  double host_noise_ms = 0;  // the same of host_ms
  double busy_ms = 0;        // its device, or its training thread, computing
  double exposed_ms = 0;     // collectives that no computing covers,
  double waiting_ms = 0;     // of which until the last rank was there
  double late_ms = 0;        // behind the middle rank, over all collectives
  double host_ms = -1;       // its host's own time, waits left out; -1 unknown
  double loading_ms = 0;     // of the training thread, whatever the device did
  int64_t last = 0;          // collectives at which it arrived last
  double clock_offset_us = 0;  // what its clock was set back by
  std::map<std::string, double> time_split_ms = {};
};

// The ranks of one run, compared: collectives end on all ranks at once, so
// their ends align the clocks, and their begins tell who waits for whom.
struct RankComparison {
  std::vector<RankRow> rows;     // by rank
  int64_t collectives = 0;       // matched on all their ranks
  int64_t skewed = 0;            // of which ranks arrived apart
  int64_t unmatched = 0;         // of the others
  double clock_residual_us = 0;  // typical disagreement left after aligning
  double step_ms = 0;            // mean over the ranks
  double waiting_ms = 0;         // the same
  double waiting_noise_ms = 0;   // by which that strays by chance: two standard
                                 // errors, from step to step
  double imbalance_ms = 0;       // exposed beyond the rank that exposes least
  int64_t steps = 0;             // compared
  int64_t steps_of_other_shapes = -1;  // steps in which input shapes differ
                                       // between ranks; -1 unknown
  std::string why_not;  // why nothing could be compared; empty if it could
};

struct Report {
  RunInfo run;
  bool has_gpu = false;
  int64_t devices_used = 0;  // that did any work, of those run.devices names
  StepStats steps;
  std::map<std::string, double>
      time_split_ms;  // cause -> mean ms per steady step; adds up to steps.mean
                      // of those exactly
  std::map<std::string, Spread> time_split_spread_ms;  // the same causes, over
                                                       // the steady steps
  std::map<std::string, double> phases_ms;
  // Only where there are no steps: how long the recording is, and its causes,
  // which add up to it.
  double recording_ms = 0;
  std::map<std::string, double> recording_split_ms;
  std::vector<StepTimes> step_times;  // in time order, at most 1000
  std::vector<MemorySummary> memory;  // what tensors took at most in each step
  ReplayCheck replay;
  std::vector<Finding>
      findings;  // A family, then ranked by gain, then the rest
  std::vector<std::string> clean;
  std::vector<SkippedRule> skipped;
  std::vector<Loss> losses;
  Plan plan;
  std::vector<TopOp> top_ops;
  std::vector<PathPart> critical_path;  // at most 50, the longest first
  std::vector<PathSlice> path_slices;   // in time order
  // Reports of a whole run only: `ranks` has rows, and the rest of the report
  // is about all ranks together.
  RankComparison ranks;
  std::vector<std::string> superseded;  // ids whose nanoseconds another finding
                                        // owns, as "id (by id)"
};

}  // namespace stepscope
