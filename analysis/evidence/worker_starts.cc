#include "evidence/worker_starts.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "evidence/loading.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "steps/patterns.h"

namespace stepscope {
namespace {

constexpr int64_t kForkNs = 2'000'000;   // forking a worker takes longer
constexpr double kPauseNs = 20'000'000;  // forking several takes longer
constexpr double kLongPause = 10;        // times the usual pause

// Finds where the loader's workers restart, judged by the ops of the training
// thread. A new iterator draws a seed and forks its workers before anything
// else runs. If workers stay alive, only the sampler draws a seed, and it
// shuffles right after that. Each span lasts from the end of the old iterator,
// which stops its workers, to the first batch of the new one.
std::vector<Span> StartsByOps(const AnalysisContext& m) {
  std::vector<Span> starts;
  if (m.steps.thread == kNone) return starts;
  const std::vector<Span> loads = LoaderSpans(m.trace, m.steps.thread);
  const std::span<const Op> ops = m.trace.ops();
  auto first = loads.end();  // first batch after the seed
  int64_t begin_ns = 0, seed_end_ns = 0, last_end_ns = 0;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = ops[row];
    if (op.parent != kNone) continue;
    const bool draws = DrawsSeed(m.trace, row);
    // Reading the seed is part of drawing it.
    const bool reads = IsAnyOf(m.trace.name(op.name), {"aten::item"});
    if (first != loads.end() && !reads) {
      const bool forks = op.begin_ns - seed_end_ns > kForkNs;
      if (draws || forks || op.begin_ns >= first->end_ns) {
        starts.push_back({begin_ns, first->end_ns});
        first = loads.end();
        last_end_ns = op.end_ns;
        continue;  // the sampler draws the second seed
      }
      first = loads.end();
    }
    if (draws) {
      first = std::ranges::upper_bound(loads, op.begin_ns, {}, &Span::begin_ns);
      seed_end_ns = op.end_ns;
      begin_ns = op.begin_ns;
      // The old iterator ended right before, unless ops ran in between.
      if (first != loads.begin() && first != loads.end() &&
          last_end_ns <= std::prev(first)->end_ns) {
        begin_ns = std::prev(first)->begin_ns;
      }
    }
    if (!draws && !reads && m.trace.name(op.name) != "aten::empty") {
      last_end_ns = op.end_ns;
    }
  }
  return starts;
}

// Returns loads after an unusually long pause of the training thread. Each span
// starts with the pause. Workers that stay alive make batches during the pause,
// so a wait after such a pause is for new workers. Nothing else shows this if
// the loader's ops were not recorded.
std::vector<Span> LoadsBehindPauses(const AnalysisContext& m) {
  std::vector<Span> found;
  if (m.steps.thread == kNone) return found;
  // Waiting for the device does not count as a pause.
  std::vector<Span> busy;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent == kNone) busy.push_back({op.begin_ns, op.end_ns});
  }
  for (const RuntimeCall& call : m.trace.runtime_calls()) {
    if (call.thread == m.steps.thread && call.op == kNone) {
      busy.push_back({call.begin_ns, call.end_ns});
    }
  }
  busy = Merge(std::move(busy));
  std::vector<double> pauses;
  std::vector<Span> spans;
  int64_t last_end_ns = 0;
  for (const Span& load : LoaderSpans(m.trace, m.steps.thread)) {
    const auto after =
        std::ranges::lower_bound(busy, load.begin_ns, {}, &Span::begin_ns);
    if (after != busy.begin()) {
      last_end_ns = std::max(last_end_ns, std::prev(after)->end_ns);
    }
    if (last_end_ns > 0) {
      pauses.push_back(static_cast<double>(
          std::max<int64_t>(0, load.begin_ns - last_end_ns)));
      spans.push_back({last_end_ns, load.end_ns});
    }
    last_end_ns = std::max(last_end_ns, load.end_ns);
  }
  if (pauses.empty()) return found;
  const double usual = Median(pauses);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (pauses[i] >= kPauseNs && pauses[i] >= kLongPause * usual) {
      found.push_back(spans[i]);
    }
  }
  return found;
}

}  // namespace

bool MakesIterator(const AnalysisContext& m, const Span& step) {
  const auto is_iter = [](std::string_view name) {
    const bool loader = name.find("DataLoader") != std::string_view::npos ||
                        name.find("dataloader") != std::string_view::npos;
    return loader && (name.find("__iter__") != std::string_view::npos ||
                      name.find("__init__") != std::string_view::npos ||
                      name.find("_get_iterator") != std::string_view::npos);
  };
  const auto within = [&](const auto& row) {
    return row.begin_ns >= step.begin_ns && row.begin_ns < step.end_ns &&
           is_iter(m.trace.name(row.name));
  };
  return std::ranges::any_of(m.trace.ranges(), within) ||
         std::ranges::any_of(m.trace.python_frames(), within);
}

std::vector<Span> StartsOfWorkers(const AnalysisContext& m) {
  std::vector<Span> starts = StartsByOps(m);
  std::ranges::copy(LoadsBehindPauses(m), std::back_inserter(starts));
  return starts;
}

}  // namespace stepscope
