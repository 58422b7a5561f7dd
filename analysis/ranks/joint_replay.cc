#include "ranks/joint_replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "ops/intervals.h"
#include "ranks/joint_program.h"
#include "ranks/late_ranks.h"
#include "steps/step_window.h"
#include "steps/steps.h"

namespace stepscope {
namespace {

// As in the replay of one rank: a replay that misses the recorded step by more
// than this share predicts nothing.
constexpr double kMostError = 0.03;
// Gains are means over steps, so a few steps are needed.
constexpr size_t kLeastSteps = 3;
// Of all ranks together. This many take some 500 MB.
constexpr size_t kMostCollectives = 5'000'000;

struct Outcome {
  std::vector<double> step_ns;  // from the end of one step to the next
  std::vector<int64_t> last;    // how often each rank was last
  double mean() const { return Mean(step_ns); }
};

// Runs the collectives of all ranks. Valid while `run` lives.
class Simulation {
 public:
  explicit Simulation(const JointRun& run)
      : run_(run), states_(run.transfers.size()), last_(run.programs.size()) {
    for (const RankProgram& program : run.programs) {
      events_.push_back(EventsOf(program));
    }
  }

  // Returns nullopt if the ranks would wait for each other forever.
  std::optional<Outcome> Run() {
    // Each rank runs until it joins a collective whose end is not known yet.
    // Rounds continue as long as some rank gets further. If no rank does and
    // ends are still missing, the ranks wait for each other in a circle.
    std::vector<size_t> next(events_.size());
    std::vector<double> delay(events_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < events_.size(); ++r) {
        for (; next[r] < events_[r].size(); ++next[r]) {
          const Event& event = events_[r][next[r]];
          if (event.joins) {
            const double end = states_[event.collective].end;
            if (end >= kNeverNs) break;
            delay[r] = std::max(delay[r], end - event.at);
          } else {
            Arrive(event.collective, r, event.at + delay[r]);
          }
          moved = true;
        }
      }
    }
    std::map<int64_t, double> ends;
    for (size_t m = 0; m < states_.size(); ++m) {
      if (states_[m].end >= kNeverNs) return std::nullopt;
      double& end =
          ends.try_emplace(run_.transfers[m].step, -kNeverNs).first->second;
      end = std::max(end, states_[m].end);
    }
    Outcome outcome;
    outcome.last = last_;
    for (auto it = ends.begin(); it != ends.end(); ++it) {
      // The first step has no step before it, so its length is unknown.
      if (it == ends.begin()) continue;
      outcome.step_ns.push_back(it->second - std::prev(it)->second);
    }
    return outcome;
  }

 private:
  struct Event {
    double at = 0;
    size_t collective = 0;
    bool joins = false;
  };
  struct State {
    size_t arrived = 0, last = 0;
    double ready = -kNeverNs;
    double end = kNeverNs;
  };

  static std::vector<Event> EventsOf(const RankProgram& program) {
    std::vector<Event> events;
    for (const RankItem& item : program) {
      events.push_back({item.ready, item.collective, false});
      if (item.joined < kNeverNs) {
        events.push_back({item.joined, item.collective, true});
      }
    }
    std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
      // A rank whose data are ready contributes them even if it starts to wait
      // at the same moment. Joining first could make it wait for itself.
      return a.at != b.at ? a.at < b.at : a.joins < b.joins;
    });
    return events;
  }

  void Arrive(size_t m, size_t rank, double ns) {
    State& state = states_[m];
    ++state.arrived;
    if (ns > state.ready) {
      state.ready = ns;
      state.last = rank;
    }
    // The collectives after it in its group may have waited for it.
    for (; m != SIZE_MAX; m = run_.transfers[m].after) {
      const JointTransfer& transfer = run_.transfers[m];
      const double before = transfer.before == SIZE_MAX
                                ? -kNeverNs
                                : states_[transfer.before].end;
      if (states_[m].arrived < transfer.ranks || before >= kNeverNs) return;
      states_[m].end = std::max(states_[m].ready, before) + transfer.ns;
      ++last_[states_[m].last];
    }
  }

  const JointRun& run_;
  std::vector<std::vector<Event>> events_;  // by index of the rank
  std::vector<State> states_;               // by index of the transfer
  std::vector<int64_t> last_;
};

double RecordedStepNs(const JointRun& run) {
  std::map<int64_t, double> ends;
  for (const JointTransfer& one : run.transfers) {
    double& end = ends.try_emplace(one.step, -kNeverNs).first->second;
    end = std::max(end, one.recorded_end);
  }
  return (ends.rbegin()->second - ends.begin()->second) /
         static_cast<double>(ends.size() - 1);
}

using Pick = std::function<double(std::vector<double>)>;

// Returns the program of `slow`, in which each piece of work takes as long as
// on `peers`. `pick` chooses one value from those of the peers.
RankProgram Mended(const RankProgram& slow,
                   const std::vector<const RankProgram*>& peers,
                   const Pick& pick) {
  RankProgram mended = slow;
  for (size_t i = 0; i < slow.size(); ++i) {
    std::vector<double> ready, joined;
    for (const RankProgram* peer : peers) {
      ready.push_back((*peer)[i].ready - (*peer)[0].ready);
      if ((*peer)[i].joined < kNeverNs) {
        joined.push_back((*peer)[i].joined - (*peer)[0].ready);
      }
    }
    mended[i].ready = slow[0].ready + pick(ready);
    mended[i].joined = kNeverNs;
    // Needed because a rank that the others wait for may never have waited
    // itself.
    if (2 * joined.size() >= peers.size()) {
      mended[i].joined =
          std::max(mended[i].ready, slow[0].ready + pick(joined));
    }
  }
  return mended;
}

double Least(std::vector<double> values) {
  return *std::ranges::min_element(values);
}

double Most(std::vector<double> values) {
  return *std::ranges::max_element(values);
}

// Returns the program with all its work `factor` times as long.
RankProgram Scaled(RankProgram program, double factor) {
  const double begin = program[0].ready;
  for (RankItem& item : program) {
    item.ready = begin + factor * (item.ready - begin);
    if (item.joined < kNeverNs) {
      item.joined = begin + factor * (item.joined - begin);
    }
  }
  return program;
}

// Returns the run in which each of `ranks` does the mean amount of their
// work.
JointRun Balanced(JointRun run, const std::vector<size_t>& ranks) {
  const auto work = [&](size_t r) {
    return run.programs[r].back().ready - run.programs[r][0].ready;
  };
  std::vector<double> works(ranks.size());
  std::ranges::transform(ranks, works.begin(), work);
  const double mean = Mean(works);
  std::vector<RankProgram> scaled;
  scaled.reserve(ranks.size());
  for (size_t r : ranks) {
    scaled.push_back(work(r) > 0 ? Scaled(run.programs[r], mean / work(r))
                                 : run.programs[r]);
  }
  std::vector<const RankProgram*> peers(scaled.size());
  std::ranges::transform(scaled, peers.begin(),
                         [](const RankProgram& program) { return &program; });
  for (size_t r : ranks) {
    run.programs[r] = Mended(run.programs[r], peers, Mean);
  }
  return run;
}

// Returns the index of the rank that the others wait for most; SIZE_MAX if
// nobody waits.
size_t MostWaitedFor(const std::vector<RankDigest>& ranks,
                     const RankComparison& comparison) {
  std::map<int32_t, double> waits;
  for (const RankWait& wait : comparison.waits)
    waits[wait.waits_for] += wait.ms;
  const auto most = std::ranges::max_element(
      waits, {}, [](const auto& entry) { return entry.second; });
  if (most == waits.end()) return SIZE_MAX;
  const auto found = std::ranges::find_if(ranks, [&](const RankDigest& rank) {
    return rank.report.run.rank == most->first;
  });
  return static_cast<size_t>(found - ranks.begin());
}

// Two standard errors of the mean of `before` - `after`.
double NoiseOfGain(const std::vector<double>& before,
                   const std::vector<double>& after) {
  const auto count = static_cast<double>(before.size());
  double sum = 0, squares = 0;
  for (size_t i = 0; i < before.size(); ++i) sum += before[i] - after[i];
  for (size_t i = 0; i < before.size(); ++i) {
    const double off = before[i] - after[i] - sum / count;
    squares += off * off;
  }
  return 2 * std::sqrt(squares / (count - 1) / count);
}

// Returns the waiting, in ms as a mean over ranks and steps, that the recording
// does not show to hold up later work. It is replayed as work, so the replay
// cannot remove it.
double UnseenMs(const std::vector<RankDigest>& ranks,
                const RankComparison& comparison) {
  double stalled_ns = 0;
  for (const RankDigest& rank : ranks) {
    std::vector<Span> stalls;
    for (const RankCollective& one : rank.collectives) {
      if (one.stalled_ns <= 0) continue;
      stalls.push_back({one.end_ns - one.stalled_ns, one.end_ns});
    }
    stalled_ns += static_cast<double>(Length(Merge(std::move(stalls))));
  }
  return std::max(
      0.0, comparison.waiting_ms - stalled_ns * 1e-6 /
                                       static_cast<double>(ranks.size()) /
                                       static_cast<double>(comparison.steps));
}

// Returns why the ranks cannot be replayed together; "" if they can.
// `unseen_ms` is the result of UnseenMs().
std::string WhyNotReplayed(const std::vector<RankDigest>& ranks,
                           const RankComparison& comparison, double unseen_ms) {
  if (!comparison.pipelines.empty() ||
      std::ranges::any_of(ranks, [](const RankDigest& rank) {
        return !MessageGroups(rank).empty();
      })) {
    return "messages between two ranks are not replayed";
  }
  if (comparison.steps < static_cast<int64_t>(kLeastSteps)) {
    return "there are too few common steps";
  }
  if (unseen_ms > kMostError * comparison.step_ms) {
    return "the recording does not show what the ranks wait for";
  }
  size_t collectives = 0;
  for (const RankDigest& rank : ranks) collectives += rank.collectives.size();
  return collectives > kMostCollectives
             ? "there are too many collectives; record fewer steps"
             : "";
}

// The replay with the change: as expected, and at its best and worst.
struct Changed {
  std::optional<Outcome> after, fastest, slowest;
};
Changed Change(const JointRun& run, size_t slow,
               const std::vector<size_t>& peers, bool balanced) {
  if (balanced) {
    std::vector<size_t> alike = peers;
    alike.push_back(slow);
    const JointRun other = Balanced(run, alike);
    const std::optional<Outcome> after = Simulation(other).Run();
    return {after, after, after};
  }
  std::vector<const RankProgram*> programs(peers.size());
  std::ranges::transform(peers, programs.begin(),
                         [&](size_t r) { return &run.programs[r]; });
  const auto mend = [&](const Pick& pick) {
    JointRun other = run;
    other.programs[slow] = Mended(run.programs[slow], programs, pick);
    return Simulation(other).Run();
  };
  return {mend(Median), mend(Least), mend(Most)};
}

// Returns the longest host time per step of all ranks without waits, if that
// of `slow` is as long as the median of the others' at most; 0 if unknown.
double LeastHostMs(const RankComparison& comparison, int32_t slow) {
  std::vector<double> others;
  double own = -1, longest = 0;
  for (const RankRow& row : comparison.rows) {
    if (row.host_ms < 0) return 0;
    if (row.rank == slow) {
      own = row.host_ms;
      continue;
    }
    others.push_back(row.host_ms);
    longest = std::max(longest, row.host_ms);
  }
  if (others.empty()) return 0;
  return std::max(longest, std::min(own, Median(others)));
}

}  // namespace

void MendSlowest(const std::vector<RankDigest>& ranks,
                 const std::vector<MatchedCollective>& matched,
                 const std::vector<double>& offsets,
                 RankComparison& comparison) {
  const auto cannot = [&](std::string why) {
    comparison.why_not_mended = std::move(why);
  };
  const size_t slow = MostWaitedFor(ranks, comparison);
  if (slow >= ranks.size()) return cannot("no rank waits for another");
  const double unseen_ms = UnseenMs(ranks, comparison);
  std::string why_not = WhyNotReplayed(ranks, comparison, unseen_ms);
  if (!why_not.empty()) return cannot(std::move(why_not));
  const JointRecording recording(ranks, matched, offsets);
  const JointRun run = recording.Make();
  const std::optional<Outcome> before = Simulation(run).Run();
  if (!before) return cannot("the order of the collectives is unknown");
  const double recorded_ns = RecordedStepNs(run);
  const double error = before->mean() / recorded_ns - 1;
  if (std::abs(error) > kMostError) {
    return cannot("replaying all ranks unchanged gives a step " +
                  std::to_string(std::lround(100 * std::abs(error))) + " % " +
                  (error > 0 ? "longer" : "shorter") +
                  " than the recorded one");
  }
  const RankProgram& own = run.programs[slow];
  const ProgramShape shape = recording.ShapeOf(slow, own);
  // With equal shapes, item i of both programs is the same collective. Mended()
  // relies on that.
  std::vector<size_t> peers;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r != slow && recording.ShapeOf(r, run.programs[r]) == shape) {
      peers.push_back(r);
    }
  }
  if (peers.empty() || own.empty()) {
    return cannot("no other rank runs the same collectives");
  }
  MendedRank mended{.rank = ranks[slow].report.run.rank};
  mended.balanced = HasLargerBatches(
      comparison,
      *std::ranges::find(comparison.rows, mended.rank, &RankRow::rank));
  const auto [after, fastest, slowest] =
      Change(run, slow, peers, mended.balanced);
  if (!after || !fastest || !slowest) {
    return cannot("the order of the collectives is unknown");
  }
  // Scale to the recorded step, whose length the replay misses by `error`.
  const double to_ms = 1e-6 / (1 + error);
  mended.before_ms = before->mean() * to_ms;
  // While a host waits for a late rank, it runs ahead of its device, so its
  // work is hidden. Without the wait, the step takes at least as long as the
  // work.
  const double host_ms = LeastHostMs(comparison, mended.rank);
  mended.after_ms =
      std::min(std::max(after->mean() * to_ms, host_ms), mended.before_ms);
  const double noise = NoiseOfGain(before->step_ns, after->step_ns) * 1e-6 +
                       std::abs(error) * (mended.before_ms - mended.after_ms);
  mended.low_ms =
      std::min(fastest->mean() * to_ms, mended.after_ms) - noise - unseen_ms;
  mended.high_ms =
      std::min(std::max(slowest->mean() * to_ms, mended.after_ms) + noise,
               mended.before_ms);
  mended.low_ms =
      std::min(std::max({0.0, mended.low_ms, host_ms}), mended.after_ms);
  const auto pace = std::ranges::max_element(after->last);
  if (*pace > 0) {
    mended.next_rank =
        ranks[static_cast<size_t>(pace - after->last.begin())].report.run.rank;
  }
  comparison.mended = mended;
}

}  // namespace stepscope
