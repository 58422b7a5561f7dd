// What recording one event costs: the workload's time per event with a
// recorder, less the same without one, all in turn in every round.
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bench.h"
#include "recorders.h"
#include "workloads.h"

namespace stepscope::bench {
namespace {

constexpr std::array kRecorders = {Recorder::kNothing, Recorder::kEmpty,
                                   Recorder::kOurs, Recorder::kKineto};

struct OpRow {
  std::string name;
  RecordOptions options;
  std::function<double()> ns_per_event;
  bool has_limit;
  double bound;
  double bound_of_limit;
};

void RunOpRow(const OpRow& row, int rounds, Results& results) {
  std::array<std::vector<double>, kRecorders.size()> added;
  for (int round = -1; round < rounds; ++round) {
    std::array<double, kRecorders.size()> ns;
    for (size_t i = 0; i < kRecorders.size(); ++i) {
      // Each round starts with another one, so that none is always first.
      const size_t at = (i + static_cast<size_t>(round + 1)) % ns.size();
      const auto scope = Start(kRecorders[at], row.options);
      ns[at] = row.ns_per_event();
    }
    if (round < 0) continue;  // warms up
    for (size_t i = 1; i < ns.size(); ++i) added[i].push_back(ns[i] - ns[0]);
  }
  results.Add({.name = row.name,
               .unit = "ns/event",
               .ours = Median(added[2]),
               .peer = Median(added[3]),
               .limit = row.has_limit ? Median(added[1]) : -1,
               .repetitions = rounds,
               .spread_frac = SpreadFrac(added[2]),
               .bound = row.bound,
               .bound_of_limit = row.bound_of_limit});
}

}  // namespace

void RunOpRows(const BenchOptions& options, Results& results) {
  const auto adds = [](int threads) {
    return [threads] { return AddOps(threads, threads == 8 ? 5000 : 20000); };
  };
  const std::vector<OpRow> rows = {
      {"op_plain_1", {}, adds(1), true, 0.35, 1.4},
      {"op_plain_2", {.all_threads = true}, adds(2), true, 0.35, 1.4},
      {"op_plain_8", {.all_threads = true}, adds(8), true, 0.35, 1.4},
      {"op_backward", {}, [] { return BackwardPasses(20); }, true, 0.4, -1},
      {"op_scope", {}, [] { return UserScopes(20000); }, true, 0.4, -1},
      {"op_shapes", {.shapes = true}, adds(1), false, 0.4, -1},
      {"op_memory", {.memory = true}, adds(1), false, 0.45, -1},
      // Not in the table of limits: what the sample records, for sample_step.
      {"op_sample", {.shapes = true, .memory = true}, adds(1), false, -1, -1},
  };
  for (const OpRow& row : rows) {
    if (Wanted(options, row.name)) RunOpRow(row, options.rounds, results);
  }
}

}  // namespace stepscope::bench
