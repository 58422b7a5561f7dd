#include "context/stalls.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ops/intervals.h"
#include "steps/non_training_steps.h"
#include "steps/steady_steps.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// The share of the time beyond the usual step that one reason must explain.
constexpr double kExplainedFrac = 0.5;
// A thread that lost its core gets it back within a few scheduler slices of 3
// to 4 ms (Linux), so a longer pause is the program's.
constexpr double kLeastPauseNs = 5e6;
// At most this many steps are read to learn what a usual step does.
constexpr size_t kUsualSteps = 32;

// What the training thread and the autograd threads did in one step.
struct HostWork {
  struct Sum {
    double ns = 0, count = 0;
  };
  std::map<NameId, Sum> ops;  // outermost ops by name
  Span pause;                 // the longest time without any op or known wait
};

// The recording that is searched for stalls.
struct Recorded {
  const Trace& trace;
  const OpTree& tree;
  const Steps& steps;
  const std::vector<StepFacts>& facts;  // by index of steps.windows
  const UsualStep& usual;
  const std::vector<CauseTimes>& splits;  // by index of steps.windows
};

class StallFinder {
 public:
  explicit StallFinder(const Recorded& m) : m_(m) {}

  Stalls All() {
    Stalls result{.usual_ns = m_.usual.length_ns};
    for (size_t i = 0; i < m_.facts.size(); ++i) {
      const StepKind kind = m_.steps.windows[i].kind;
      if (kind == StepKind::kWarmUp) continue;
      ++result.steps;
      if (kind == StepKind::kValidation) {
        result.stalls.push_back({.step = i,
                                 .excess_ns = ValidationNs(m_.facts[i]),
                                 .kind = StallKind::kValidation});
        continue;
      }
      const bool slow = IsSlow(m_.facts[i], m_.usual);
      if (!slow && !TakesParameters(m_.facts[i])) continue;
      result.stalls.push_back(
          {.step = i,
           .excess_ns = static_cast<double>(m_.facts[i].length_ns) -
                        m_.usual.length_ns});
      slow_.insert(i);
    }
    if (result.stalls.empty()) return result;
    LearnUsual();
    // On a noisy machine a step that saves the model may take no longer than
    // the other steps. Then the length of its pause counts as its excess time.
    std::erase_if(result.stalls, [&](Stall& stall) {
      if (stall.kind == StallKind::kValidation ||
          IsSlow(m_.facts[stall.step], m_.usual)) {
        return false;
      }
      stall.excess_ns = PauseNs(WorkIn(m_.steps.windows[stall.step].host));
      return stall.excess_ns < kLeastPauseNs;
    });
    NameOwnWork(result.stalls);
    for (Stall& stall : result.stalls) Explain(stall);
    return result;
  }

 private:
  double ValidationNs(const StepFacts& fact) const;
  HostWork WorkIn(Span window) const;
  void LearnUsual();
  const Stall* StallAt(const std::vector<Stall>& stalls, int64_t time_ns) const;
  void NameOwnWork(const std::vector<Stall>& stalls);
  void Explain(Stall& stall) const;
  void ExplainByOps(const HostWork& work, Stall& stall) const;
  bool TakesParameters(const StepFacts& fact) const;
  double CommunicationNs(size_t step) const {
    return static_cast<double>(m_.splits[step][Cause::kCommunication]);
  }
  double PauseNs(const HostWork& work) const;
  std::string OwnOpBefore(const HostWork& work) const;

  const Recorded m_;
  std::vector<RowId> threads_;  // whose ops count
  std::vector<Span> known_;     // recorded waits and calls, which are no pauses
  std::set<size_t> slow_;       // steps
  // Of the usual step:
  std::map<NameId, HostWork::Sum> usual_ops_;
  double usual_pause_ns_ = 0;
  double usual_communication_ns_ = 0;
  // By slow step: the longest range or function that usual steps do not have.
  std::map<size_t, std::pair<int64_t, NameId>> own_;
};

// What validation adds to the step; all of it if the step does not train.
double StallFinder::ValidationNs(const StepFacts& fact) const {
  const auto length = static_cast<double>(fact.length_ns);
  return fact.backward == 0 && m_.usual.backward > 0
             ? length
             : std::max(0.0, length - m_.usual.length_ns);
}

HostWork StallFinder::WorkIn(Span window) const {
  HostWork work;
  std::vector<Span> busy = Clip(known_, window);
  for (RowId thread : threads_) {
    for (RowId row : m_.tree.of_thread(thread, window)) {
      const Op& op = m_.trace.ops()[row];
      if (op.parent != kNone) continue;
      HostWork::Sum& sum = work.ops[op.name];
      sum.ns += static_cast<double>(op.end_ns - op.begin_ns);
      ++sum.count;
      busy.push_back({op.begin_ns, op.end_ns});
    }
  }
  const std::vector<Span> whole = {window};
  for (const Span& pause : Subtract(whole, Merge(std::move(busy)))) {
    if (pause.length() > work.pause.length()) work.pause = pause;
  }
  return work;
}

// Sets known_, and what the steps that are not slow do.
void StallFinder::LearnUsual() {
  threads_ = AutogradThreads(m_.tree, m_.steps.thread);
  if (m_.steps.thread != kNone) threads_.push_back(m_.steps.thread);
  for (const Range& range : m_.trace.ranges()) {
    // The training thread may wait for a collective of another thread.
    const bool collective = range.kind == RangeKind::kCollective;
    if (range.thread != m_.steps.thread && !collective) continue;
    if (collective || range.kind == RangeKind::kLoader ||
        m_.trace.name(range.name) == "Python GC") {
      known_.push_back({range.begin_ns, range.end_ns});
    }
  }
  for (const Communication& row : m_.trace.communications()) {
    known_.push_back({row.begin_ns, row.end_ns});
  }
  for (const RuntimeCall& call : m_.trace.runtime_calls()) {
    if (std::ranges::count(threads_, call.thread)) {
      known_.push_back({call.begin_ns, call.end_ns});
    }
  }
  known_ = Merge(std::move(known_));
  std::vector<double> pauses, communication;
  double steps = 0;
  for (size_t i : m_.steps.steady) {
    if (slow_.contains(i)) continue;
    const HostWork work = WorkIn(m_.steps.windows[i].host);
    for (const auto& [name, sum] : work.ops) {
      usual_ops_[name].ns += sum.ns;
      usual_ops_[name].count += sum.count;
    }
    pauses.push_back(static_cast<double>(work.pause.length()));
    communication.push_back(CommunicationNs(i));
    if (++steps >= kUsualSteps) break;
  }
  if (steps == 0) return;
  for (auto& [name, sum] : usual_ops_) {
    sum.ns /= steps;
    sum.count /= steps;
  }
  usual_pause_ns_ = Median(std::move(pauses));
  usual_communication_ns_ = Median(std::move(communication));
}

// The stall of the step that contains `time_ns`; nullptr if there is none.
const Stall* StallFinder::StallAt(const std::vector<Stall>& stalls,
                                  int64_t time_ns) const {
  const size_t step = WindowAt(m_.steps, &StepWindow::host, time_ns);
  const auto at = std::ranges::lower_bound(stalls, step, {}, &Stall::step);
  return at != stalls.end() && at->step == step ? &*at : nullptr;
}

// Sets own_: for each slow step, the longest range or Python function that
// explains it and that usual steps do not have. The longest one is the
// outermost if they are nested.
void StallFinder::NameOwnWork(const std::vector<Stall>& stalls) {
  struct Piece {
    size_t step;
    int64_t ns;
    NameId name;
  };
  std::vector<Piece> pieces;
  std::vector<bool> usual(m_.trace.name_count());
  const auto look_at = [&](const auto& row) {
    if (row.thread != m_.steps.thread) return;
    if (const Stall* stall = StallAt(stalls, row.begin_ns)) {
      const int64_t ns = row.end_ns - row.begin_ns;
      if (static_cast<double>(ns) >= kExplainedFrac * stall->excess_ns) {
        pieces.push_back({stall->step, ns, row.name});
      }
    } else if (InSteadyStep(m_.steps, row.begin_ns)) {
      usual[row.name] = true;
    }
  };
  for (const Range& range : m_.trace.ranges()) {
    if (IsUserRange(range)) look_at(range);
  }
  for (const PythonFrame& frame : m_.trace.python_frames()) look_at(frame);
  for (const Piece& piece : pieces) {
    if (usual[piece.name]) continue;
    auto& longest = own_[piece.step];
    if (piece.ns > longest.first) longest = {piece.ns, piece.name};
  }
}

// True if the step reads or copies at least one whole tensor per parameter more
// than the usual step does, which shows that it saves the model.
bool StallFinder::TakesParameters(const StepFacts& fact) const {
  return m_.usual.parameters >= 1 &&
         static_cast<double>(fact.taken) - m_.usual.taken >=
             m_.usual.parameters;
}

// The time of the step's longest pause beyond that of a usual step.
double StallFinder::PauseNs(const HostWork& work) const {
  return static_cast<double>(work.pause.length()) - usual_pause_ns_;
}

// Returns the op directly before the pause if the usual step has fewer ops of
// that name. Then the pause belongs to something that only slow steps do; a
// pause of Python's garbage collector could come after any op. Empty if the
// usual step has as many.
std::string StallFinder::OwnOpBefore(const HostWork& work) const {
  const std::span<const RowId> rows = m_.tree.of_thread(m_.steps.thread);
  auto row = std::ranges::lower_bound(
      rows, work.pause.begin_ns, {},
      [&](RowId r) { return m_.trace.ops()[r].begin_ns; });
  while (row != rows.begin() &&
         m_.trace.ops()[*std::prev(row)].parent != kNone) {
    --row;
  }
  if (row == rows.begin()) return "";
  const NameId name = m_.trace.ops()[*std::prev(row)].name;
  const auto here = work.ops.find(name);
  const auto usual = usual_ops_.find(name);
  const double more = (here == work.ops.end() ? 0 : here->second.count) -
                      (usual == usual_ops_.end() ? 0 : usual->second.count);
  return more >= 1 ? std::string(m_.trace.name(name)) : "";
}

// The op that takes the most time beyond what it takes in the usual step.
void StallFinder::ExplainByOps(const HostWork& work, Stall& stall) const {
  for (const auto& [name, sum] : work.ops) {
    const auto usual = usual_ops_.find(name);
    const double more =
        sum.ns - (usual == usual_ops_.end() ? 0 : usual->second.ns);
    if (more <= stall.ns) continue;
    stall.ns = more;
    stall.what = m_.trace.name(name);
  }
  if (stall.kind == StallKind::kUnknown &&
      stall.ns >= kExplainedFrac * stall.excess_ns) {
    stall.kind = StallKind::kOps;
  }
}

void StallFinder::Explain(Stall& stall) const {
  if (stall.kind == StallKind::kValidation) {
    return ExplainByOps(WorkIn(m_.steps.windows[stall.step].host), stall);
  }
  const StepFacts& fact = m_.facts[stall.step];
  const double enough = kExplainedFrac * stall.excess_ns;
  const auto is = [&](StallKind kind, double ns, std::string_view what) {
    stall.kind = kind;
    stall.ns = ns;
    stall.what = what;
  };
  const auto gc = static_cast<double>(fact.gc_ns);
  if (gc >= enough) return is(StallKind::kGarbage, gc, "Python GC");
  const double loading =
      static_cast<double>(fact.loading_ns) - m_.usual.loading_ns;
  if (loading >= enough) return is(StallKind::kLoading, loading, "");
  if (IsCheckpoint(fact, m_.usual)) {
    return is(StallKind::kSaving,
              fact.logging.empty() ? stall.excess_ns
                                   : static_cast<double>(fact.logging_ns),
              fact.logging);
  }
  if (const auto own = own_.find(stall.step); own != own_.end()) {
    const auto [ns, id] = own->second;
    const std::string_view name = m_.trace.name(id);
    return is(IsCompiling(name) ? StallKind::kCompiling : StallKind::kOwnWork,
              static_cast<double>(ns), name);
  }
  const double communication =
      CommunicationNs(stall.step) - usual_communication_ns_;
  if (communication >= enough) {
    return is(StallKind::kCommunicating, communication, "");
  }
  const HostWork work = WorkIn(m_.steps.windows[stall.step].host);
  const double pause = PauseNs(work);
  const bool stops = pause >= enough && pause >= kLeastPauseNs;
  if (stops && TakesParameters(fact)) {
    return is(StallKind::kSaving, pause, "");
  }
  if (stops) {
    stall.after = OwnOpBefore(work);
    return is(stall.after.empty() ? StallKind::kPause : StallKind::kOwnWork,
              pause, "");
  }
  ExplainByOps(work, stall);
}

}  // namespace

Stalls FindStalls(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts, const UsualStep& usual,
                  const std::vector<CauseTimes>& splits) {
  if (steps.steady.empty()) return {};
  return StallFinder({trace, tree, steps, facts, usual, splits}).All();
}

}  // namespace stepscope
