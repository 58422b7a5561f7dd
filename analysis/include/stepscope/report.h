// Report: what the analysis concludes about one Trace, or about all ranks of a
// run. It holds no pointer into the Trace and outlives it. Times are ms per
// steady step unless a name or comment says otherwise. Plain values: copies are
// independent, and any thread may read a const Report.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/summary.h>
#include <stepscope/trace.h>
#include <stepscope/whole_run.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace stepscope {

// kOk: nothing to change. kWarning: worth changing. kError: something is wrong,
// such as an incomplete recording.
enum class FindingStatus : uint8_t { kOk, kWarning, kError };

// Gain relative to the step: critical from 25 %, high from 10 %, medium from
// 3 %, low from 1 %. For an upper bound, half of it counts.
enum class FindingSeverity : uint8_t { kNote, kLow, kMedium, kHigh, kCritical };

// How sure the rule is of the cause. kProven: the events show it. kStrong: it
// follows from the events and a stated assumption. kHint: other causes remain.
enum class Confidence : uint8_t { kHint, kStrong, kProven };

// kPredicted: replay predicts the gain. kBound: the gain is at most this.
enum class GainKind : uint8_t { kNone, kBound, kPredicted };

// Milliseconds per step saved, and the range that 90 % of outcomes should lie
// in. Negative values are losses. For an upper bound, `expected_ms` and
// `high_ms` are the bound; `low_ms` is 0 unless pairs are known.
struct Gain {
  double expected_ms = 0;
  double low_ms = 0;
  double high_ms = 0;
  // The number of pairs of runs, measured before and after such a change, that
  // the range is derived from. 0: no pairs are known, and the range is a rough
  // estimate by the model.
  int64_t pairs = 0;
};

// An event that shows a finding.
struct Example {
  int64_t step = -1;  // its number; -1 outside the steps
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::string what;  // op chain or range, and thread
};

// One setting that a fix changes, for programs: {"workers", 1}. All keys are in
// docs/json.md, "Settings".
struct Setting {
  std::string key;
  std::variant<bool, int64_t, double, std::string> value;
  bool operator==(const Setting&) const = default;
};

// One pattern that a rule found, and what to do about it.
struct Finding {
  std::string id;  // "sync-data-loading"
  FindingStatus status = FindingStatus::kWarning;
  FindingSeverity severity = FindingSeverity::kNote;
  Confidence confidence = Confidence::kHint;
  GainKind gain_kind = GainKind::kNone;
  Gain gain;
  // The step that `gain` refers to, where that is not the mean steady step; for
  // example the mean of all steps, for a stall that only some steps have.
  // 0: StepStats::mean_ms.
  double baseline_ms = 0;
  // Step now / step with this change alone; 0 without a predicted gain. With a
  // larger batch, both are times per sample.
  double speedup = 0;
  std::string evidence;           // one or two sentences with measured numbers
  std::vector<Example> examples;  // at most 3
  std::string where;              // source line or op chain; may be empty
  std::string assumption;         // what the gain assumes
  std::string fix_cpp;
  std::string fix_python;
  std::vector<Setting> settings;  // the fix as settings; empty if it has none
  std::string wrong_if;           // what would prove the finding wrong
  std::string reference;          // guide and section
  // Of the host waits that the change removes, the share (0 to 1) in which the
  // device ran only collectives; 0 also if replay already accounts for them.
  double collectives_frac = 0;
  // The findings that this one supersedes, half a sentence each:
  // "launch-bound, predicted 3.20 ms by itself".
  std::vector<std::string> also;
};

// A rule that did not run, and why.
struct SkippedRule {
  std::string id;
  std::string why;
  // The rule is about other machines or needs another command; no further data
  // in this recording would help it.
  bool elsewhere = false;
};

// A cause that takes at least 5 % of the step or 10 % of the critical path,
// with the findings about it or the reason why there are none.
struct CauseAnswer {
  std::string cause = {};             // a key of time_split_ms
  double ms = 0;                      // per step
  double path_ms = 0;                 // on the critical path, per step
  std::vector<std::string> ids = {};  // findings above note about it, by gain
  std::vector<std::string> looked = {};  // rules about it that found no change
  // Why no change is offered for the cause, or for most of its time. Empty if
  // the findings could save at least half of that time.
  std::string why = {};
};

// What to change first. `ids` is the shortest list of changes that comes within
// 5 % of the best predicted step; empty where replay is not valid or no change
// helps. Changes whose gain has only an upper bound are in `at_most`.
struct Plan {
  std::vector<std::string> ids;      // findings with a predicted gain
  std::vector<std::string> at_most;  // findings with a bound, at most 3
  std::vector<std::string> order;    // all of them, in the order to follow
  std::vector<std::string> changes;  // in words: "1 loader worker"
  std::vector<Setting> settings;     // the same for programs
  double step_before_ms = 0;         // the step that gains refer to
  double step_after_ms = 0;          // with all changes
  // The step time after each of `ids`, together with the changes before it; the
  // last one is step_after_ms.
  std::vector<double> after_each_ms = {};
  double low_ms = 0;  // likely range of step_after_ms
  double high_ms = 0;
  int64_t pairs = 0;            // as in Gain
  std::string assumption = {};  // of step_after_ms; empty if there is none
};

// An operator in the table of operators.
struct TopOp {
  std::string name;
  // On threads that neither train nor run the backward pass, such as a
  // loader's.
  bool other_thread = false;
  bool is_collective = false;   // or waits for one
  double self_ms_per_step = 0;  // without nested operators
  double total_ms_per_step = 0;
  double gpu_self_ms_per_step = 0;  // of the device work it launches itself
  double calls_per_step = 0;
};

// The operators of one module or source line, forward and backward.
struct PlaceTime {
  std::string name;             // "layer1.0.conv1"; "train.py:88 in step"
  std::string class_name = {};  // of a module: "Conv2d"
  // Self time leaves out the modules inside a module. For a line, self and
  // total are the same.
  double self_ms_per_step = 0;  // host time inside operators, all threads
  double total_ms_per_step = 0;
  double gpu_self_ms_per_step = 0;  // of the device work they launch
  double gpu_total_ms_per_step = 0;
  // For a module, calls of its forward pass; for a line, of operators.
  double calls_per_step = 0;
};

// One cause and name on the critical path, summed.
struct PathPart {
  std::string category;  // a key of time_split_ms
  // Op, kernel or call. Between ops, the source line if Python frames were
  // recorded, else empty.
  std::string name;
  double ms_per_step = 0;
};

// One section of the critical path, for drawing.
struct PathSlice {
  std::string category;  // a key of time_split_ms
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// The smallest and the largest value over the steady steps.
struct Spread {
  double least = 0;
  double most = 0;
};

struct StepStats {
  int64_t count = 0;   // all recorded steps
  int64_t steady = 0;  // the steps that means are taken over
  double mean_ms = 0;  // as recorded, over the steady steps
  double median_ms = 0;
  double cov = 0;  // standard deviation / mean of the steady steps
  // What step boundaries were inferred from where the trace has no step marks:
  // "the updates of the optimizer"; else empty.
  std::string step_source;
  double all_mean_ms = 0;  // over all steps but warm-up: those with validation
                           // or checkpoints included
  // mean_ms without the cost of recording, which gains refer to; 0 if that cost
  // is not known. The cost is estimated if `cost_estimated`, else measured by
  // the recorder.
  double unprofiled_ms = 0;
  bool cost_estimated = false;
  // Findings that gain less than this are notes: 1 % of the step, or two
  // standard errors of its mean if that is more, and at least 0.1 ms. With
  // several ranks, the mean over the ranks.
  double smallest_gain_ms = 0;
};

// One recorded step.
struct StepTimes {
  int64_t number = -1;
  // "steady" steps are averaged; "warm-up", "validation", "checkpoint" and
  // "slow" steps are not.
  std::string kind;
  double ms = 0;
  // For a step of at least 1.2 times the median: what it does in the time
  // beyond the median, "runs no op for 170 ms"; empty for the others.
  std::string why = {};
  std::map<std::string, double> time_split_ms = {};  // by cause; sum is ms
};

// Whether the unchanged replay reproduces the recording. If not, gains are
// bounds or missing.
struct ReplayCheck {
  int64_t steps = 0;         // steady steps replayed; not all of a long run
  double no_edit_error = 0;  // (replayed - measured) / measured step
  // The error of a replay without any device time, compared with the host's
  // time without waits; 0 for CPU-only runs.
  double limit_error = 0;
  bool valid = false;
  std::string why_not;  // empty if valid
};

// One rank of a run.
struct RankRow {
  int32_t rank = -1;
  std::string source = {};  // its trace file
  double step_ms = 0;
  double noise_ms = 0;       // of step_ms: two standard errors
  double host_noise_ms = 0;  // of host_ms: two standard errors
  double busy_ms = 0;        // compute on its device, or on its training thread
  double exposed_ms = 0;     // collectives not covered by compute
  double waiting_ms = 0;  // the part of exposed_ms until the last rank arrives
  double late_ms = 0;     // arrival after the median rank, summed over a step
  double host_ms = -1;    // host time without waits; -1 unknown
  double loading_ms = 0;  // data loading while no device is busy
  int64_t last = 0;       // skewed collectives at which this rank was last
  double clock_offset_us = 0;  // subtracted from its clock to align the ranks
  std::string host = {};       // its machine; "" unknown
  // Clock of its GPU, mean over the recording; -1 if not recorded.
  double sm_clock_mhz = -1;
  double kernels = 0;  // per step, without collectives
  int32_t stage = -1;  // its stage in a pipeline, from 0; -1: in no pipeline
  std::map<std::string, double> time_split_ms = {};  // by cause
};

// How long one rank waits for another that arrives last at their collectives.
struct RankWait {
  int32_t rank = -1;
  int32_t waits_for = -1;
  double ms = 0;  // per step
};

// The collectives of one group of ranks (a communicator).
struct RankGroupRow {
  std::vector<int32_t> ranks = {};  // the recorded ones, ascending
  std::string name = {};            // as recorded; "" unknown
  std::string description = {};
  int32_t size = -1;  // ranks in the group; -1 unknown
  // What it serves: "data", "sharded data", "tensor", "pipeline", "expert",
  // "context"; "" if nothing says. `evidence` is what the guess rests on.
  std::string parallelism = {};
  std::string evidence = {};
  // Per step, means over `ranks`.
  double collectives = 0;
  double total_ms = 0;    // of the collectives, waits included
  double exposed_ms = 0;  // the part of total_ms while nothing computes
  double waiting_ms = 0;  // the part of exposed_ms until the last rank arrives
  double bytes = 0;       // of the collectives whose size is known
  // Bus bandwidth as nccl-tests define it, over the collectives of 1 MiB or
  // more, from the arrival of the last rank; 0 unknown.
  double gb_per_s = 0;
  int32_t last_rank = -1;  // the rank that arrives last most often; -1: none
  int64_t last = 0;        // how often it does
  int64_t hosts = 0;       // machines of `ranks`; 0 unknown
  // Only for a group on several machines. `skewed`: the collectives at which
  // its ranks arrive apart. `late_host`: the machine whose ranks are then the
  // last more often than chance explains; "" if there is none.
  // `late_host_last`: how often they are.
  int64_t skewed = 0;
  std::string late_host = {};
  int64_t late_host_last = 0;
};

// A machine of a job that runs on several machines.
struct MachineRow {
  std::string host = {};
  std::vector<int32_t> ranks = {};  // ascending
  // How long a rank of another machine waits for this one's ranks, per step.
  double waited_for_ms = 0;
  // `skewed` counts the collectives with other machines at which ranks arrive
  // apart; `last` those of them at which a rank of this machine is the last.
  int64_t skewed = 0;
  int64_t last = 0;
  bool recurs = false;  // it is the last more often than chance explains
  // Bus bandwidths as in RankGroupRow: of the collectives among its own ranks,
  // and of those with other machines; 0 unknown.
  double inside_gb_per_s = 0;
  double across_gb_per_s = 0;
};

// A stage of a pipeline.
struct PipelineStage {
  int32_t rank = -1;
  double busy_ms = 0;     // compute
  double waiting_ms = 0;  // waits for neighbours' messages without computing
};

// A pipeline: ranks that pass activations to each other. Sorted by stage.
struct PipelineRow {
  std::vector<PipelineStage> stages = {};
  double micro_batches = 0;  // per step; 0 unknown
  int64_t chunks = 1;        // of the model per rank (interleaved schedule)
  double bubble_frac = 0;    // of the step, mean over the stages
  // (p-1) / (v m + p-1) for p stages, m micro-batches and v chunks: what a
  // schedule with equally long stages and free messages leaves; 0 unknown.
  double ideal_frac = 0;
};

// A prediction for the run if one rank (or the ranks of one machine) took only
// as long as the median of the others. If that rank's batches are larger than
// theirs, the prediction is for equal batches on all ranks. All ranks are
// replayed together, from the first to the last common step.
struct MendedRank {
  int32_t rank = -1;
  bool balanced = false;  // its batches are larger
  double before_ms = 0;   // the unchanged replay
  double after_ms = 0;
  double low_ms = 0;  // likely range of after_ms
  double high_ms = 0;
  int32_t next_rank = -1;  // the rank waited for most after that; -1: none
};

// The ranks of one run, compared. A collective ends on all ranks at once, so
// its ends align the ranks' clocks, and its starts then show who waits for
// whom.
struct RankComparison {
  std::vector<RankRow> rows;    // by rank; empty in the report of one rank
  bool has_gpu = false;         // some rank recorded activities of a GPU
  bool different_jobs = false;  // the traces look like ranks of several jobs
  int64_t collectives = 0;      // matched on all ranks of their group
  int64_t skewed = 0;           // matched ones at which ranks arrive apart
  int64_t unmatched = 0;        // left out: some rank did not record them
  // Of `collectives`: some rank of their group recorded none of the group's in
  // that step. Waiting for such a rank looks like moving data.
  int64_t partial = 0;
  // Ranks that recorded collectives, of which none could be matched: their
  // steps have other numbers, for example.
  std::vector<int32_t> unmatched_ranks = {};
  double clock_residual_us = 0;  // median disagreement after aligning
  double step_ms = 0;            // mean over the ranks
  double waiting_ms = 0;         // mean over the ranks
  double waiting_noise_ms = 0;   // of waiting_ms: two standard errors
  // Exposed time beyond that of the rank that exposes least, mean over the
  // ranks.
  double imbalance_ms = 0;
  // Only if a single step was recorded: the part of waiting_ms that passes only
  // because the ranks begin that step at different times. They end it together,
  // so they would also begin the next step together.
  double start_wait_ms = 0;
  double starts_apart_ms = 0;  // from the first rank to begin to the last
  int64_t steps = 0;           // steps compared
  // Steps in which input shapes differ between ranks; -1 if shapes were not
  // recorded.
  int64_t steps_of_other_shapes = -1;
  std::vector<RankWait> waits;         // at most 1000, the longest first
  std::vector<RankGroupRow> groups;    // at most 1000, longest exposed first
  std::vector<PipelineRow> pipelines;  // at most 1000
  // The machine that is waited for most comes first. Empty for a single
  // machine, or if the recordings do not name machines.
  std::vector<MachineRow> machines;
  // For the rank that is waited for most. Its rank is -1 if nobody waits, or if
  // the ranks cannot be replayed together; then `why_not_mended` says why.
  MendedRank mended;
  std::string why_not_mended;
  std::string why_not;  // why ranks cannot be compared; empty if they can
};

struct Report {
  RunInfo run;
  bool has_gpu = false;  // GPU activities were recorded
  // A device other than NVIDIA and AMD GPUs that computes, but whose work is
  // not in the trace ("MTIA"); empty if there is no sign of one.
  std::string accelerator;
  int64_t devices_used = 0;  // devices with activities, of run.devices
  StepStats steps;
  // Cause -> mean ms per steady step. The parts add up to steps.mean_ms. Causes
  // that take no time are left out.
  std::map<std::string, double> time_split_ms;
  std::map<std::string, Spread> time_split_spread_ms;
  // The critical path by cause, mean ms per steady step.
  std::map<std::string, double> path_split_ms;
  // "data", "forward", "backward", "optimizer", "validate", "other" -> ms.
  std::map<std::string, double> phases_ms;
  // Only without steps: length of the recording, and its causes, which add up
  // to it.
  double recording_ms = 0;
  std::map<std::string, double> recording_split_ms;
  std::vector<StepTimes> step_times;  // in time order, at most 1000
  std::vector<MemorySummary> memory;  // peaks by step, then device
  ReplayCheck replay;
  // Findings about the recording itself come first, then those with a gain (the
  // largest first), then those without, then notes.
  std::vector<Finding> findings;
  // Rules that ran and found nothing, unless `coverage` has them.
  std::vector<std::string> clean;
  std::vector<SkippedRule> skipped;  // rules that did not run
  std::vector<Loss> losses;          // what is missing from the recording
  Plan plan;
  // What takes much of the step, largest first. Empty without steps.
  std::vector<CauseAnswer> coverage;
  // At most 50, largest time first: the device's if has_gpu, else self time.
  std::vector<TopOp> top_ops;
  // At most 50 each, largest self time first; empty where the recording has no
  // modules or no stacks.
  std::vector<PlaceTime> modules;
  std::vector<PlaceTime> lines;
  std::vector<PathPart> critical_path;  // at most 50, the longest first
  std::vector<PathSlice> path_slices;   // in time order
  RankComparison ranks;                 // AnalyzeRanks() only
  // Live recordings only: all steps of the run until the report was written.
  WholeRun whole_run;
  // Findings left out because another finding owns their time: "id (by id)".
  std::vector<std::string> superseded;
};

}  // namespace stepscope
