#include "evidence/loading.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "evidence/uploads.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

constexpr int kWorkersToTry = 32;
constexpr size_t kSamplesToCollate = 4;

bool IsAnyOf(std::string_view name,
             std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// The stacks that gradients flow back through: these are parameters or
// activations, put together by the model.
std::unordered_set<RowId> StacksOfModel(const Trace& trace) {
  std::unordered_set<RowId> stacks;
  for (const Op& op : trace.ops()) {
    if (op.forward != kNone &&
        trace.name(op.name).starts_with("StackBackward")) {
      stacks.insert(op.forward);
    }
  }
  return stacks;
}

// Decodes or collates: puts samples together, or casts bytes.
bool MakesBatches(const Trace& trace, RowId op,
                  const std::unordered_set<RowId>& stacks_of_model) {
  const std::string_view name = trace.name(trace.ops()[op].name);
  if (name == "aten::from_blob") return true;
  if (IsAnyOf(name, {"aten::stack", "aten::cat"})) {
    if (stacks_of_model.contains(op)) return false;
    const RowId inputs = trace.ops()[op].inputs;
    if (inputs == kNone) return name == "aten::stack";
    const std::vector<Argument>& arguments =
        trace.op_inputs()[inputs].arguments;
    // Lists whose elements were not recorded are believed.
    return name == "aten::stack" &&
           (arguments.empty() || arguments[0].elements.empty() ||
            arguments[0].elements.size() >= kSamplesToCollate);
  }
  return IsAnyOf(name, {"aten::to", "aten::_to_copy"}) &&
         trace.name(TensorArgument(trace, op, 0).type) == "unsigned char";
}

}  // namespace

Loading FindLoading(const AnalysisContext& m) {
  Loading waits;
  const bool named = std::ranges::any_of(
      m.trace.ranges(),
      [](const Range& range) { return range.kind == RangeKind::kLoader; });
  for (const Range& range : m.trace.ranges()) {
    if (range.thread != m.steps.thread) continue;
    const bool phase = !named && range.kind == RangeKind::kPhase &&
                       m.trace.name(range.name) == "data";
    if (range.kind != RangeKind::kLoader && !phase) continue;
    waits.any = true;
    const size_t step = SteadyStepAt(m.steps, range.begin_ns);
    if (step == m.steps.windows.size()) continue;
    ++waits.batches;
    waits.longest.push_back({m.steps.windows[step].number, range.begin_ns,
                             range.end_ns,
                             std::string(m.trace.name(range.name))});
  }
  waits.worker_processes =
      std::ranges::any_of(m.trace.ranges(), [&](const Range& range) {
        return m.trace.name(range.name).find("MultiProcessing") !=
               std::string_view::npos;
      });
  std::ranges::stable_sort(waits.longest, std::greater(), [](const Example& e) {
    return e.end_ns - e.begin_ns;
  });
  if (waits.longest.size() > 3) waits.longest.resize(3);
  return waits;
}

Collation FindCollation(const AnalysisContext& m) {
  Collation collation;
  const Trace& trace = m.trace;
  if (m.steps.thread == kNone || m.steps.empty()) return collation;
  const std::vector<bool> launches = OpsThatLaunch(trace);
  const std::unordered_set<RowId> stacks_of_model = StacksOfModel(trace);
  std::vector<bool> backward(trace.threads().size());
  for (RowId row : AutogradThreads(trace, m.steps.thread)) {
    backward[row] = true;
  }
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const RowId thread = trace.ops()[row].thread;
    if (thread == kNone || thread == m.steps.thread || backward[thread] ||
        launches[row]) {
      continue;
    }
    if (MakesBatches(trace, row, stacks_of_model))
      return collation;  // by a worker
  }
  std::vector<Span> idle;
  for (const Gap& gap : m.waits.idle) idle.push_back(gap.idle);
  idle = Merge(std::move(idle));

  const auto rows = m.tree.of_thread(m.steps.thread);
  for (size_t i : m.steps.steady) {
    const Span& host = m.steps.windows[i].host;
    Span stretch;
    auto it = std::ranges::lower_bound(rows, host.begin_ns, {}, [&](RowId row) {
      return trace.ops()[row].begin_ns;
    });
    for (; it != rows.end() && trace.ops()[*it].begin_ns < host.end_ns; ++it) {
      const Op& op = trace.ops()[*it];
      // The model begins: what it stacks is no batch.
      if (m.tree.traits(*it).matmul) break;
      if (launches[*it] && stretch.end_ns != 0) break;  // the batch is sent
      if (launches[*it] || !MakesBatches(trace, *it, stacks_of_model)) {
        continue;
      }
      if (stretch.end_ns == 0) stretch.begin_ns = op.begin_ns;
      stretch.end_ns = std::max(stretch.end_ns, op.end_ns);
    }
    if (stretch.length() <= 0) continue;
    collation.stretches.push_back(stretch);
    collation.idle_ns += static_cast<double>(m.has_gpu ? LengthIn(idle, stretch)
                                                       : stretch.length());
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  collation.idle_ns /= steps;
  collation.steps_frac =
      static_cast<double>(collation.stretches.size()) / steps;
  return collation;
}

std::string LoaderName(const AnalysisContext& m) {
  for (const Loader& loader : m.trace.loaders()) {
    if (loader.name != 0) {
      return "loader \"" + std::string(m.trace.name(loader.name)) + "\"";
    }
  }
  return "";
}

std::vector<Edit> WorkerEdits(const AnalysisContext& m, int from, int most) {
  const CpuProgram& program = m.replay.program();
  std::vector<Edit> edits;
  most = std::min(most, from + kWorkersToTry);
  for (int workers = from; workers <= most; ++workers) {
    edits.push_back({.workers = workers});
    const int left = program.cores - workers;
    if (program.threads > 1 && left >= 1 && left < program.threads) {
      edits.push_back({.workers = workers, .threads = left});
    }
  }
  // A later one must be better by 1 % to be worth its worker.
  size_t best = 0;
  for (size_t i = 1; i < edits.size(); ++i) {
    if (m.replay.StepNs(edits[i]) < 0.99 * m.replay.StepNs(edits[best])) {
      best = i;
    }
  }
  if (!edits.empty()) std::swap(edits[0], edits[best]);
  return edits;
}

int CoresForLoading(const AnalysisContext& m) {
  int cores = m.trace.run().usable_cores;
  if (cores <= 0) return 0;
  return std::max(1, cores / std::max(1, m.trace.run().local_ranks));
}

Finding LoaderFix(const AnalysisContext& m, Finding finding, const Edit& edit) {
  const std::string n = std::to_string(edit.workers);
  finding.fix_cpp = "torch::data::DataLoaderOptions().workers(" + n +
                    ").max_jobs(" + std::to_string(2 * edit.workers) + ")";
  finding.fix_python = "DataLoader(..., num_workers=" + n +
                       ", persistent_workers=True" +
                       (m.has_gpu ? ", pin_memory=True)" : ")");
  if (edit.threads > 0) {
    const std::string threads = std::to_string(edit.threads);
    finding.fix_cpp += "; at::set_num_threads(" + threads + ")";
    finding.fix_python += "; torch.set_num_threads(" + threads + ")";
  }
  return finding;
}

}  // namespace stepscope
