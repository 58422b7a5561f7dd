#include "ranks/joint_replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ops/intervals.h"
#include "ranks/late_ranks.h"
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
constexpr double kNever = std::numeric_limits<double>::infinity();

// One collective on one rank. Times count the ns of this rank's own work: time
// in which it only waited is left out.
struct Item {
  size_t collective = 0;   // index into World::transfers
  double ready = 0;        // when its data are ready
  double joined = kNever;  // when the rank can do nothing more without it;
                           // kNever: the rank never waits for it
};
using Program = std::vector<Item>;

struct Transfer {
  size_t ranks = 0;
  int64_t step = 0;
  double ns = 0;             // duration once all ranks are there
  size_t before = SIZE_MAX;  // the neighbours in its process group
  size_t after = SIZE_MAX;
  double recorded_end = 0;
};

struct World {
  std::vector<Transfer> transfers;
  std::vector<Program> programs;  // by index of the rank
};

// For each collective of a rank: kind, whether of integers, and group size. Two
// ranks with the same shape run the same program, perhaps in different groups.
using Shape = std::vector<std::tuple<std::string, bool, int32_t>>;

class Recording {
 public:
  Recording(const std::vector<RankDigest>& ranks,
            const std::vector<MatchedCollective>& matched,
            const std::vector<double>& offsets)
      : ranks_(ranks), matched_(matched), offsets_(offsets) {
    base_ns_ = ranks[0].collectives[0].begin_ns;
  }

  World Make() const {
    World world;
    std::vector<std::unordered_map<size_t, size_t>> of_rank(ranks_.size());
    std::vector<std::pair<double, size_t>> order;
    for (size_t m = 0; m < matched_.size(); ++m) {
      double arrival = -kNever, end = kNever;
      for (const auto& [r, i] : matched_[m].members) {
        of_rank[r][i] = m;
        const RankCollective& one = ranks_[r].collectives[i];
        arrival = std::max(arrival, At(r, one.begin_ns));
        end = std::min(end, At(r, one.end_ns));
      }
      world.transfers.push_back({.ranks = matched_[m].members.size(),
                                 .step = matched_[m].step,
                                 .ns = std::max(0.0, end - arrival),
                                 .recorded_end = end});
      order.push_back({end, m});
    }
    // Collectives of one process group run one after the other.
    std::ranges::sort(order);
    // RankCollective::group differs by kind of operation, but all kinds of one
    // process group take turns. So identify the process group by its ranks and
    // description.
    std::map<std::tuple<std::string, std::string, int32_t>, size_t> last;
    for (const auto& [end, m] : order) {
      const GroupTraffic* group =
          GroupOf(matched_[m].members[0].first, matched_[m].group);
      if (group == nullptr) continue;
      const auto [entry, is_new] = last.try_emplace(
          {group->members.empty() ? group->name : group->members,
           group->description, group->size},
          m);
      if (!is_new) {
        world.transfers[m].before = entry->second;
        world.transfers[entry->second].after = m;
        entry->second = m;
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      world.programs.push_back(ProgramOf(r, of_rank[r]));
    }
    return world;
  }

  Shape ShapeOf(size_t r, const Program& program) const {
    Shape shape;
    for (const Item& item : program) {
      const GroupTraffic* group = GroupOf(r, matched_[item.collective].group);
      if (group == nullptr) {
        shape.push_back({"", false, 0});
      } else {
        shape.push_back({group->kind, group->is_integer, group->size});
      }
    }
    return shape;
  }

 private:
  double At(size_t r, int64_t ns) const {
    return static_cast<double>(ns - base_ns_) - offsets_[r];
  }
  const GroupTraffic* GroupOf(size_t r, uint64_t group) const {
    const auto found =
        std::ranges::find(ranks_[r].groups, group, &GroupTraffic::group);
    return found == ranks_[r].groups.end() ? nullptr : &*found;
  }

  Program ProgramOf(size_t r,
                    const std::unordered_map<size_t, size_t>& matched) const {
    const std::vector<RankCollective>& list = ranks_[r].collectives;
    // When the rank stood still.
    std::vector<std::pair<double, double>> stalls;
    for (size_t i = 0; i < list.size(); ++i) {
      // If a collective was not matched, the wait for it counts as work.
      if (list[i].stalled_ns <= 0 || !matched.contains(i)) continue;
      stalls.push_back(
          {At(r, list[i].end_ns - list[i].stalled_ns), At(r, list[i].end_ns)});
    }
    // Collectives on several streams may hold up the rank at the same time.
    // Merge their stalls, so that this time counts once.
    std::ranges::sort(stalls);
    std::vector<std::tuple<double, double, double>>
        merged;  // (start, end, stalled before start)
    double so_far = 0;
    for (const auto& [begin, end] : stalls) {
      if (!merged.empty() && begin <= std::get<1>(merged.back())) {
        double& last = std::get<1>(merged.back());
        so_far += std::max(0.0, end - last);
        last = std::max(last, end);
        continue;
      }
      merged.push_back({begin, end, so_far});
      so_far += end - begin;
    }
    // Translates a time on the clock into the work that the rank has done by
    // then. It subtracts all stalls before that time, and of a stall still
    // going on the part that has passed.
    const auto work = [&](double ns) {
      const auto after = std::ranges::upper_bound(
          merged, ns, {}, [](const auto& stall) { return std::get<0>(stall); });
      if (after == merged.begin()) return ns;
      const auto& [begin, end, before] = *std::prev(after);
      return ns - before - (std::min(ns, end) - begin);
    };
    Program program;
    for (size_t i = 0; i < list.size(); ++i) {
      const auto found = matched.find(i);
      if (found == matched.end()) continue;
      const RankCollective& one = list[i];
      Item item{.collective = found->second};
      item.ready = work(At(r, one.begin_ns - one.queued_ns));
      if (one.stalled_ns > 0) {
        item.joined =
            std::max(item.ready, work(At(r, one.end_ns - one.stalled_ns)));
      }
      program.push_back(item);
    }
    return program;
  }

  const std::vector<RankDigest>& ranks_;
  const std::vector<MatchedCollective>& matched_;
  const std::vector<double>& offsets_;
  int64_t base_ns_ = 0;
};

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

struct Outcome {
  std::vector<double> step_ns;  // from the end of one step to the next
  std::vector<int64_t> last;    // how often each rank was last
  double mean() const { return MeanOf(step_ns); }
};

// Runs the collectives of all ranks. Valid while `world` lives.
class Simulation {
 public:
  explicit Simulation(const World& world)
      : world_(world),
        states_(world.transfers.size()),
        last_(world.programs.size()) {
    for (const Program& program : world.programs) {
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
            if (end >= kNever) break;
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
      if (states_[m].end >= kNever) return std::nullopt;
      double& end =
          ends.try_emplace(world_.transfers[m].step, -kNever).first->second;
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
    double ready = -kNever;
    double end = kNever;
  };

  static std::vector<Event> EventsOf(const Program& program) {
    std::vector<Event> events;
    for (const Item& item : program) {
      events.push_back({item.ready, item.collective, false});
      if (item.joined < kNever) {
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
    for (; m != SIZE_MAX; m = world_.transfers[m].after) {
      const Transfer& transfer = world_.transfers[m];
      const double before =
          transfer.before == SIZE_MAX ? -kNever : states_[transfer.before].end;
      if (states_[m].arrived < transfer.ranks || before >= kNever) return;
      states_[m].end = std::max(states_[m].ready, before) + transfer.ns;
      ++last_[states_[m].last];
    }
  }

  const World& world_;
  std::vector<std::vector<Event>> events_;  // by index of the rank
  std::vector<State> states_;               // by index of the transfer
  std::vector<int64_t> last_;
};

double RecordedStepNs(const World& world) {
  std::map<int64_t, double> ends;
  for (const Transfer& one : world.transfers) {
    double& end = ends.try_emplace(one.step, -kNever).first->second;
    end = std::max(end, one.recorded_end);
  }
  return (ends.rbegin()->second - ends.begin()->second) /
         static_cast<double>(ends.size() - 1);
}

using Pick = std::function<double(std::vector<double>)>;

// Returns the program of `slow`, in which each piece of work takes as long as
// on `peers`. `pick` chooses one value from those of the peers.
Program Mended(const Program& slow, const std::vector<const Program*>& peers,
               const Pick& pick) {
  Program mended = slow;
  for (size_t i = 0; i < slow.size(); ++i) {
    std::vector<double> ready, joined;
    for (const Program* peer : peers) {
      ready.push_back((*peer)[i].ready - (*peer)[0].ready);
      if ((*peer)[i].joined < kNever) {
        joined.push_back((*peer)[i].joined - (*peer)[0].ready);
      }
    }
    mended[i].ready = slow[0].ready + pick(ready);
    mended[i].joined = kNever;
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
Program Scaled(Program program, double factor) {
  const double begin = program[0].ready;
  for (Item& item : program) {
    item.ready = begin + factor * (item.ready - begin);
    if (item.joined < kNever) {
      item.joined = begin + factor * (item.joined - begin);
    }
  }
  return program;
}

// Returns the world in which each of `ranks` does the mean amount of their
// work.
World Balanced(World world, const std::vector<size_t>& ranks) {
  const auto work = [&](size_t r) {
    return world.programs[r].back().ready - world.programs[r][0].ready;
  };
  std::vector<double> works(ranks.size());
  std::ranges::transform(ranks, works.begin(), work);
  const double mean = MeanOf(works);
  std::vector<Program> scaled;
  scaled.reserve(ranks.size());
  for (size_t r : ranks) {
    scaled.push_back(work(r) > 0 ? Scaled(world.programs[r], mean / work(r))
                                 : world.programs[r]);
  }
  std::vector<const Program*> peers(scaled.size());
  std::ranges::transform(scaled, peers.begin(),
                         [](const Program& program) { return &program; });
  for (size_t r : ranks) {
    world.programs[r] = Mended(world.programs[r], peers, MeanOf);
  }
  return world;
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
Changed Change(const World& world, size_t slow,
               const std::vector<size_t>& peers, bool balanced) {
  if (balanced) {
    std::vector<size_t> alike = peers;
    alike.push_back(slow);
    const World other = Balanced(world, alike);
    const std::optional<Outcome> after = Simulation(other).Run();
    return {after, after, after};
  }
  std::vector<const Program*> programs(peers.size());
  std::ranges::transform(peers, programs.begin(),
                         [&](size_t r) { return &world.programs[r]; });
  const auto mend = [&](const Pick& pick) {
    World other = world;
    other.programs[slow] = Mended(world.programs[slow], programs, pick);
    return Simulation(other).Run();
  };
  return {mend(Median), mend(Least), mend(Most)};
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
  const Recording recording(ranks, matched, offsets);
  const World world = recording.Make();
  const std::optional<Outcome> before = Simulation(world).Run();
  if (!before) return cannot("the order of the collectives is unknown");
  const double recorded_ns = RecordedStepNs(world);
  const double error = before->mean() / recorded_ns - 1;
  if (std::abs(error) > kMostError) {
    return cannot("replaying all ranks unchanged gives a step " +
                  std::to_string(std::lround(100 * std::abs(error))) + " % " +
                  (error > 0 ? "longer" : "shorter") +
                  " than the recorded one");
  }
  const Program& own = world.programs[slow];
  const Shape shape = recording.ShapeOf(slow, own);
  // With equal shapes, item i of both programs is the same collective. Mended()
  // relies on that.
  std::vector<size_t> peers;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (r != slow && recording.ShapeOf(r, world.programs[r]) == shape) {
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
      Change(world, slow, peers, mended.balanced);
  if (!after || !fastest || !slowest) {
    return cannot("the order of the collectives is unknown");
  }
  // Scale to the recorded step, whose length the replay misses by `error`.
  const double to_ms = 1e-6 / (1 + error);
  mended.before_ms = before->mean() * to_ms;
  mended.after_ms = std::min(after->mean() * to_ms, mended.before_ms);
  const double noise = NoiseOfGain(before->step_ns, after->step_ns) * 1e-6 +
                       std::abs(error) * (mended.before_ms - mended.after_ms);
  mended.low_ms =
      std::min(fastest->mean() * to_ms, mended.after_ms) - noise - unseen_ms;
  mended.high_ms =
      std::min(std::max(slowest->mean() * to_ms, mended.after_ms) + noise,
               mended.before_ms);
  mended.low_ms = std::max(0.0, mended.low_ms);
  const auto pace = std::ranges::max_element(after->last);
  if (*pace > 0) {
    mended.next_rank =
        ranks[static_cast<size_t>(pace - after->last.begin())].report.run.rank;
  }
  comparison.mended = mended;
}

}  // namespace stepscope
