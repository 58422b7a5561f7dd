#include "engine/time_by_place.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "device/collective_names.h"
#include "ops/captured_place.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/program_frames.h"
#include "words/source_line.h"

namespace stepscope {
namespace {

// Returns the place of each op. `own` has the places that ops have of their own
// (kNone: it has none). An autograd node gets the place of its forward op, and
// an op without a place that of the op around it. Ops inside a node get the
// place of the node even if they have their own, unless `own_in_backward`.
std::vector<RowId> PlacesOf(const AnalysisContext& m, std::vector<RowId> own,
                            bool own_in_backward) {
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row = 0; row < ops.size(); ++row) {
    const Op& op = ops[row];
    const RowId outer = op.parent == kNone ? kNone : own[op.parent];
    const bool node = op.kind == OpKind::kBackward;
    if (node && op.forward != kNone && own[op.forward] != kNone) {
      own[row] = own[op.forward];
    } else if (own[row] == kNone || (outer != kNone && !own_in_backward &&
                                     m.tree.in_backward(row))) {
      own[row] = outer;
    }
  }
  return own;
}

void SortPlaces(std::vector<PlaceTime>& places, bool has_gpu, size_t most) {
  std::ranges::stable_sort(places, std::greater(),
                           has_gpu ? &PlaceTime::gpu_self_ms_per_step
                                   : &PlaceTime::self_ms_per_step);
  if (places.size() > most) places.resize(most);
}

// Sorts and turns sums in ns into ms per step.
std::vector<PlaceTime> Listed(const AnalysisContext& m,
                              std::vector<PlaceTime> places, size_t most) {
  const double steps =
      static_cast<double>(std::max<size_t>(m.steps.steady.size(), 1));
  for (PlaceTime& place : places) {
    for (double* ns :
         {&place.self_ms_per_step, &place.total_ms_per_step,
          &place.gpu_self_ms_per_step, &place.gpu_total_ms_per_step}) {
      *ns *= 1e-6 / steps;
    }
    place.calls_per_step /= steps;
  }
  std::erase_if(places, [](const PlaceTime& place) {
    return place.calls_per_step == 0 && place.total_ms_per_step == 0 &&
           place.gpu_total_ms_per_step == 0;
  });
  SortPlaces(places, m.has_gpu, most);
  return places;
}

// The recorded modules: their ranges, and which are open when an op begins.
struct Modules {
  std::vector<RowId> around;  // by range: the module around it
  std::vector<RowId> of_op;   // by op: the innermost open one
};

Modules FindModules(const Trace& trace) {
  Modules found{.around = std::vector<RowId>(trace.ranges().size(), kNone),
                .of_op = std::vector<RowId>(trace.ops().size(), kNone)};
  std::vector<RowId> open(trace.threads().size(), kNone);
  const auto close_to = [&](RowId thread, int64_t time_ns) {
    RowId& row = open[thread];
    while (row != kNone && trace.ranges()[row].end_ns <= time_ns) {
      row = found.around[row];
    }
  };
  // Both tables are sorted by begin.
  RowId next = 0;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    for (; next < trace.ranges().size() &&
           trace.ranges()[next].begin_ns <= op.begin_ns;
         ++next) {
      const Range& range = trace.ranges()[next];
      if (range.kind != RangeKind::kModule || range.thread >= open.size()) {
        continue;
      }
      close_to(range.thread, range.begin_ns);
      found.around[next] = open[range.thread];
      open[range.thread] = next;
    }
    if (op.thread >= open.size()) continue;
    close_to(op.thread, op.begin_ns);
    found.of_op[row] = open[op.thread];
  }
  return found;
}

using PlaceIndex = std::map<NameId, size_t>;

// Returns the index of the place with that name in `places`; adds it if it is
// new.
size_t PlaceAt(const Trace& trace, NameId name, NameId class_name,
               PlaceIndex& index, std::vector<PlaceTime>& places) {
  const auto [at, is_new] = index.try_emplace(name, places.size());
  if (is_new) {
    places.push_back({.name = std::string(trace.name(name)),
                      .class_name = std::string(trace.name(class_name))});
  }
  return at->second;
}

// Adds the time of kernels in CUDA graphs to their modules. No module runs when
// a graph is replayed, so the outer modules are found by the path of the
// captured one.
void AddCapturedModules(const AnalysisContext& m, PlaceIndex& index,
                        std::vector<PlaceTime>& places) {
  std::map<NameId, int64_t> gpu_ns;
  for (const Kernel& kernel : m.trace.kernels()) {
    if (kernel.captured_module == 0 ||
        !(m.steps.empty() ||
          InSteadyStep(m.steps, AskedForNs(m.trace, kernel)))) {
      continue;
    }
    gpu_ns[kernel.captured_module] += kernel.end_ns - kernel.begin_ns;
  }
  for (const auto& [module, ns] : gpu_ns) {
    places[PlaceAt(m.trace, module, 0, index, places)].gpu_self_ms_per_step +=
        static_cast<double>(ns);
  }
  for (const auto& [module, ns] : gpu_ns) {
    const std::string_view path = m.trace.name(module);
    for (PlaceTime& place : places) {
      if (path == place.name ||
          (path.starts_with(place.name) && path[place.name.size()] == '.')) {
        place.gpu_total_ms_per_step += static_cast<double>(ns);
      }
    }
  }
}

// The source lines of a recording, and the line of each op that has one (kNone:
// it has none).
struct Lines {
  std::vector<PlaceTime> places = {};
  std::vector<RowId> of_op = {};
};

// Adds lines to `places`, each once.
class LineIndex {
 public:
  explicit LineIndex(std::vector<PlaceTime>& places) : places_(places) {}

  RowId At(std::string line) {
    if (line.empty()) return kNone;
    const auto [at, is_new] =
        index_.try_emplace(line, static_cast<RowId>(places_.size()));
    if (is_new) places_.push_back({.name = std::move(line)});
    return at->second;
  }

 private:
  std::vector<PlaceTime>& places_;
  std::map<std::string, RowId> index_;
};

Lines LinesOfStacks(const Trace& trace) {
  Lines lines{.of_op = std::vector<RowId>(trace.ops().size(), kNone)};
  LineIndex index(lines.places);
  std::vector<RowId> of_stack;
  for (const Stack& stack : trace.stacks()) {
    of_stack.push_back(index.At(SourceLine(trace, stack.frames)));
  }
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const RowId stack = trace.ops()[row].stack;
    if (stack != kNone) lines.of_op[row] = of_stack[stack];
  }
  return lines;
}

// Finds the lines from Python frames, which torch.profiler records as events of
// their own instead of stacks of ops.
Lines LinesOfFrames(const Trace& trace) {
  Lines lines{.of_op = std::vector<RowId>(trace.ops().size(), kNone)};
  if (trace.python_frames().empty()) return lines;
  LineIndex index(lines.places);
  ProgramFrames open(trace);
  std::map<std::pair<NameId, NameId>, RowId> known;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    const auto [innermost, outermost] = open.At(op.thread, op.begin_ns);
    if (innermost == 0) continue;
    const auto [at, is_new] = known.try_emplace({innermost, outermost}, kNone);
    if (is_new) {
      at->second =
          index.At(SourceLine(trace, std::array{innermost, outermost}));
    }
    lines.of_op[row] = at->second;
  }
  return lines;
}

}  // namespace

OpTimes TimesOf(const AnalysisContext& m) {
  const std::span<const Op> ops = m.trace.ops();
  OpTimes times{.host_ns = std::vector<int64_t>(ops.size()),
                .gpu_ns = std::vector<int64_t>(ops.size()),
                .known_op_ns = std::vector<int64_t>(ops.size()),
                .known_module_ns = std::vector<int64_t>(ops.size()),
                .counts = std::vector<bool>(ops.size())};
  for (RowId row = 0; row < ops.size(); ++row) {
    const Op& op = ops[row];
    times.counts[row] = m.steps.empty() || InSteadyStep(m.steps, op.begin_ns);
    if (!times.counts[row]) continue;
    times.host_ns[row] += op.end_ns - op.begin_ns;
    if (op.parent == kNone) continue;
    // If a child ends after its parent, which happens in files with rounded
    // times, only the part inside the parent is subtracted.
    times.host_ns[op.parent] -= std::max<int64_t>(
        0, std::min(op.end_ns, ops[op.parent].end_ns) - op.begin_ns);
  }
  const auto add = [&](const DeviceWork& work, std::vector<int64_t>& sums) {
    if (work.op != kNone && times.counts[work.op]) {
      sums[work.op] += work.end_ns - work.begin_ns;
    }
  };
  for (const Kernel& row : m.trace.kernels()) {
    add(row, times.gpu_ns);
    if (row.captured_ops != kNone) add(row, times.known_op_ns);
    if (row.captured_module != 0) add(row, times.known_module_ns);
  }
  for (const Copy& row : m.trace.copies()) add(row, times.gpu_ns);
  for (const Memset& row : m.trace.memsets()) add(row, times.gpu_ns);
  return times;
}

std::vector<TopOp> OpsByTime(const AnalysisContext& m, const OpTimes& times) {
  const Trace& trace = m.trace;
  const std::span<const Op> ops = trace.ops();
  struct Sum {
    int64_t self_ns = 0, total_ns = 0, gpu_ns = 0, calls = 0;
  };
  // Threads that do the training. Ops of other threads get separate rows.
  std::vector<bool> trains(trace.threads().size(), m.steps.thread == kNone);
  if (m.steps.thread != kNone) trains[m.steps.thread] = true;
  for (RowId thread : AutogradThreads(m.tree, m.steps.thread)) {
    trains[thread] = true;
  }
  std::map<std::pair<NameId, bool>, Sum> sums;
  for (RowId row = 0; row < ops.size(); ++row) {
    if (!times.counts[row]) continue;
    const Op& op = ops[row];
    const bool elsewhere = op.thread != kNone && !trains[op.thread];
    Sum& sum = sums[{op.name, elsewhere}];
    sum.self_ns += times.host_ns[row];
    sum.gpu_ns += times.gpu_ns[row] - times.known_op_ns[row];
    ++sum.calls;
    // A total counts nested calls of the same name once, because the outer call
    // contains them.
    if (op.parent == kNone || ops[op.parent].name != op.name) {
      sum.total_ns += op.end_ns - op.begin_ns;
    }
  }
  for (const Kernel& row : trace.kernels()) {
    const std::span<const NameId> captured = CapturedOps(trace, row);
    if (captured.empty()) continue;
    if (!m.steps.empty() && !InSteadyStep(m.steps, AskedForNs(trace, row))) {
      continue;
    }
    sums[{captured.front(), false}].gpu_ns += row.end_ns - row.begin_ns;
  }
  const double steps = std::max<size_t>(m.steps.steady.size(), 1);
  std::vector<TopOp> top;
  for (const auto& [key, sum] : sums) {
    const std::string_view name = trace.name(key.first);
    top.push_back(
        {.name = std::string(name),
         .other_thread = key.second,
         .is_collective = IsCollectiveOp(name),
         .self_ms_per_step = std::max<int64_t>(sum.self_ns, 0) * 1e-6 / steps,
         .total_ms_per_step = sum.total_ns * 1e-6 / steps,
         .gpu_self_ms_per_step = sum.gpu_ns * 1e-6 / steps,
         .calls_per_step = sum.calls / steps});
  }
  SortOps(top, m.has_gpu);
  return top;
}

void SortOps(std::vector<TopOp>& ops, bool has_gpu) {
  const auto key = [&](const TopOp& op) {
    return std::tuple(has_gpu ? -op.gpu_self_ms_per_step : 0.0,
                      -op.self_ms_per_step, std::string_view(op.name),
                      op.other_thread);
  };
  std::ranges::sort(ops, {}, key);
}

std::vector<PlaceTime> TimeByModule(const AnalysisContext& m,
                                    const OpTimes& times, size_t most) {
  const std::span<const Range> ranges = m.trace.ranges();
  PlaceIndex index;
  std::vector<PlaceTime> places;
  std::vector<size_t> place_of(ranges.size());
  for (RowId row = 0; row < ranges.size(); ++row) {
    const Range& range = ranges[row];
    if (range.kind != RangeKind::kModule) continue;
    place_of[row] = PlaceAt(m.trace, range.name, range.detail, index, places);
    if (m.steps.empty() || InSteadyStep(m.steps, range.begin_ns)) {
      ++places[place_of[row]].calls_per_step;
    }
  }
  AddCapturedModules(m, index, places);
  if (places.empty()) return {};
  const Modules modules = FindModules(m.trace);
  const std::vector<RowId> of_op = PlacesOf(m, modules.of_op, true);
  for (RowId row = 0; row < of_op.size(); ++row) {
    if (of_op[row] == kNone || !times.counts[row]) continue;
    const auto host = static_cast<double>(times.host_ns[row]);
    const auto gpu =
        static_cast<double>(times.gpu_ns[row] - times.known_module_ns[row]);
    PlaceTime& innermost = places[place_of[of_op[row]]];
    innermost.self_ms_per_step += host;
    innermost.gpu_self_ms_per_step += gpu;
    for (RowId at = of_op[row]; at != kNone; at = modules.around[at]) {
      PlaceTime& place = places[place_of[at]];
      place.total_ms_per_step += host;
      place.gpu_total_ms_per_step += gpu;
    }
  }
  return Listed(m, std::move(places), most);
}

std::vector<PlaceTime> TimeByLine(const AnalysisContext& m,
                                  const OpTimes& times) {
  const std::span<const Op> ops = m.trace.ops();
  Lines lines = m.trace.stacks().empty() ? LinesOfFrames(m.trace)
                                         : LinesOfStacks(m.trace);
  std::vector<PlaceTime>& places = lines.places;
  if (places.empty()) return {};
  const std::vector<RowId> of_op = PlacesOf(m, std::move(lines.of_op), false);
  for (RowId row = 0; row < of_op.size(); ++row) {
    if (of_op[row] == kNone || !times.counts[row]) continue;
    PlaceTime& place = places[of_op[row]];
    place.self_ms_per_step += static_cast<double>(times.host_ns[row]);
    place.total_ms_per_step += static_cast<double>(times.host_ns[row]);
    place.gpu_self_ms_per_step += static_cast<double>(times.gpu_ns[row]);
    place.gpu_total_ms_per_step += static_cast<double>(times.gpu_ns[row]);
    const bool is_call =
        ops[row].kind == OpKind::kOperator && ops[row].parent == kNone;
    place.calls_per_step += is_call;
  }
  return Listed(m, std::move(places), kPlacesListed);
}

void MergePlaces(const std::vector<RankDigest>& ranks, Report& run) {
  const double share = 1.0 / static_cast<double>(ranks.size());
  for (auto list : {&Report::modules, &Report::lines}) {
    std::map<std::string, size_t> index;
    std::vector<PlaceTime>& sums = run.*list;
    for (const RankDigest& rank : ranks) {
      for (const PlaceTime& place : rank.report.*list) {
        const auto [at, is_new] = index.try_emplace(place.name, sums.size());
        if (is_new) {
          sums.push_back({.name = place.name, .class_name = place.class_name});
        }
        PlaceTime& sum = sums[at->second];
        for (auto value :
             {&PlaceTime::self_ms_per_step, &PlaceTime::total_ms_per_step,
              &PlaceTime::gpu_self_ms_per_step,
              &PlaceTime::gpu_total_ms_per_step, &PlaceTime::calls_per_step}) {
          sum.*value += share * (place.*value);
        }
      }
    }
    SortPlaces(sums, run.has_gpu, kPlacesListed);
  }
}

}  // namespace stepscope
