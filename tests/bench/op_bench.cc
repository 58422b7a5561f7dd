// Measures the cost of recording one event: the workload's time per event with
// a recorder minus the time without one.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench.h"
#include "recorders.h"
#include "turns.h"
#include "workloads.h"

namespace stepscope::bench {
namespace {

constexpr std::array kRecorders = {Recorder::kEmpty, Recorder::kOurs,
                                   Recorder::kKineto};

struct OpRow {
  std::string name;
  RecordOptions options;
  std::function<double()> ns_per_event;
  bool has_limit;
  std::optional<double> bound;
  std::optional<double> bound_of_limit;
  int max_rounds = 1000;
};

void RunOpRow(const OpRow& row, int rounds, Results& results) {
  rounds = std::min(rounds, row.max_rounds);
  const auto added = AddedNs(kRecorders, row.options, rounds, row.ns_per_event);
  Result result{.name = row.name,
                .unit = "ns/event",
                .ours = Median(added[1]),
                .peer = Median(added[2]),
                .repetitions = rounds,
                .spread = Spread(added[1]),
                .bound = row.bound,
                .bound_of_limit = row.bound_of_limit};
  if (row.has_limit) result.limit = Median(added[0]);
  results.Add(result);
}

// Measures what a window costs before its first event: preparing memory,
// installing hooks, and measuring the cost of an operator.
void RunOpenRow(int rounds, Results& results) {
  const RecordOptions options{.shapes = true, .memory = true};
  const auto seconds = [&](Recorder recorder) {
    const auto begin = std::chrono::steady_clock::now();
    const auto scope = Start(recorder, options);
    const std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - begin;
    AddOps(1, 100);
    return passed.count();
  };
  std::vector<double> ours, peer;
  for (int round = -1; round < rounds; ++round) {
    const double own = seconds(Recorder::kOurs);
    const double kineto = seconds(Recorder::kKineto);
    if (round < 0) continue;
    ours.push_back(own);
    peer.push_back(kineto);
  }
  results.Add({.name = "window_open",
               .unit = "s",
               .ours = Median(ours),
               .peer = Median(peer),
               .repetitions = rounds,
               .spread = Spread(ours)});
}

}  // namespace

void RunOpRows(const BenchOptions& options, Results& results) {
  const auto adds = [](int threads) {
    return [threads] { return AddOps(threads, threads == 8 ? 5000 : 20000); };
  };
  const auto backward = [] { return BackwardPasses(20); };
  const auto scopes = [] { return UserScopes(20000); };
  const auto blocks = [] { return ResidualBlocks(100); };
  const std::vector<OpRow> rows = {
      {"op_plain_1", {}, adds(1), true, 0.35, 1.4},
      {"op_plain_2", {.all_threads = true}, adds(2), true, 0.35, 1.4},
      {"op_plain_8", {.all_threads = true}, adds(8), true, 0.35, 1.4},
      {"op_backward", {}, backward, true, 0.4, {}},
      {"op_scope", {}, scopes, true, 0.4, {}},
      {"op_shapes", {.shapes = true}, adds(1), false, 0.4, {}},
      {"op_memory", {.memory = true}, adds(1), true, 0.45, {}},
      // Rows without a limit: a window that outgrows its prepared memory, and
      // the operators and options of the sample, for sample_step.
      {"op_plain_long",
       {},
       [] { return AddOps(1, 600000); },
       true,
       0.35,
       {},
       5},
      {"op_sample", {.shapes = true, .memory = true}, blocks, true, {}, {}},
  };
  for (const OpRow& row : rows) {
    if (Wanted(options, row.name)) RunOpRow(row, options.rounds, results);
  }
  if (Wanted(options, "window_open")) RunOpenRow(options.rounds, results);
}

}  // namespace stepscope::bench
