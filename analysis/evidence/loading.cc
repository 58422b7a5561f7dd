#include "evidence/loading.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "evidence/host_copies.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "replay/model/loader.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Each try is a simulation, and more than 32 further workers seldom pay off.
constexpr int kWorkersToTry = 32;
// A stack of fewer tensors may be something other than a batch of samples.
constexpr size_t kSamplesToCollate = 4;

// Returns the stack ops with a backward node. Gradients flow through them, so
// they stack parameters or activations (attention heads, time steps), not
// samples.
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

// True for ops that decode or collate: those that wrap a buffer, stack samples,
// or cast bytes to numbers.
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
    // Without recorded elements, assume that the list may be a batch.
    return name == "aten::stack" &&
           (arguments.empty() || arguments[0].elements.empty() ||
            arguments[0].elements.size() >= kSamplesToCollate);
  }
  return IsAnyOf(name, {"aten::to", "aten::_to_copy"}) &&
         trace.name(TensorArgument(trace, op, 0).type) == "unsigned char";
}

// Returns the ops of the model, by row: ops that multiply by weights or look
// them up, backward ops, and the ops around all these.
std::vector<bool> OpsOfModel(const AnalysisContext& context) {
  const Trace& trace = context.trace;
  std::vector<bool> model(trace.ops().size());
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const OpTraits& traits = context.tree.traits(row);
    if (!context.tree.in_backward(row) && !traits.matmul &&
        traits.kind != KernelClass::kAttention &&
        trace.name(trace.ops()[row].name) != "aten::embedding") {
      continue;
    }
    for (RowId op = row; op != kNone && !model[op];
         op = trace.ops()[op].parent) {
      model[op] = true;
    }
  }
  return model;
}

// True for ops that choose samples or copy the chosen ones.
bool ChoosesSamples(std::string_view name) {
  return IsAnyOf(name, {"aten::gather", "aten::index", "aten::index_select",
                        "aten::masked_select", "aten::multinomial",
                        "aten::randint", "aten::randperm", "aten::slice",
                        "aten::take", "aten::take_along_dim"});
}

// Returns the time in ns of the outermost ops in `span` that choose samples.
int64_t ChoosingNs(const AnalysisContext& context, const Span& span) {
  int64_t ns = 0;
  for (RowId row : context.tree.of_thread(context.steps.thread, span)) {
    const Op& op = context.trace.ops()[row];
    if (op.parent == kNone && ChoosesSamples(context.trace.name(op.name))) {
      ns += op.end_ns - op.begin_ns;
    }
  }
  return ns;
}

// Returns the span from the first to the last computing op of the step before
// its model runs and before autograd makes a node. Empty if neither happens. If
// an op made a node, the next outermost op has a higher sequence number.
Span PreparationIn(const AnalysisContext& context, const Span& step,
                   const std::vector<bool>& model) {
  const std::vector<Span>& updates = context.parts.optimizer.spans;
  Span made, last;  // `last`: of the last outermost op, which may make a node
  const auto with_last = [&] {
    if (last.end_ns == 0) return made;
    return Span{made.end_ns == 0 ? last.begin_ns : made.begin_ns,
                std::max(made.end_ns, last.end_ns)};
  };
  int64_t sequence = -1;
  for (RowId row : context.tree.of_thread(context.steps.thread, step)) {
    const Op& op = context.trace.ops()[row];
    if (op.parent == kNone) {
      if (sequence >= 0 && op.sequence > sequence) return made;
      if (sequence < 0) sequence = op.sequence;
      made = with_last();
      last = {};
    }
    if (model[row]) return with_last();
    const Span span{op.begin_ns, op.end_ns};
    if (!context.tree.computes(row) || LengthIn(updates, span) > 0) continue;
    if (last.end_ns == 0) last.begin_ns = op.begin_ns;
    last.end_ns = std::max(last.end_ns, op.end_ns);
  }
  return {};
}

}  // namespace

bool DrawsSeed(const Trace& trace, RowId op) {
  if (trace.name(trace.ops()[op].name) != "aten::random_") return false;
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return false;
  const std::vector<Argument>& list = trace.op_inputs()[inputs].arguments;
  return !list.empty() && list.front().dims.empty() &&
         trace.name(list.front().type) == "long int";
}

// Finds the waits for batches that a loop marks. FindCollation() finds unmarked
// loading.
Loading FindLoading(const AnalysisContext& context) {
  Loading waits;
  const TakesBatch takes_batch(context.trace);
  for (const Range& range : context.trace.ranges()) {
    if (range.thread != context.steps.thread || !takes_batch(range)) continue;
    waits.any = true;
    const size_t step = SteadyStepAt(context.steps, range.begin_ns);
    if (step == context.steps.windows.size()) continue;
    ++waits.batches;
    waits.longest.push_back({context.steps.windows[step].number, range.begin_ns,
                             range.end_ns,
                             std::string(context.trace.name(range.name))});
  }
  waits.worker_processes = NamesWorkerProcesses(context.trace);
  std::ranges::stable_sort(waits.longest, std::greater(), [](const Example& e) {
    return e.end_ns - e.begin_ns;
  });
  if (waits.longest.size() > 3) waits.longest.resize(3);
  return waits;
}

Collation FindCollation(const AnalysisContext& context) {
  Collation collation;
  const Trace& trace = context.trace;
  if (context.steps.thread == kNone || context.steps.empty()) return collation;
  const std::vector<bool> launches = OpsThatLaunch(trace);
  const std::unordered_set<RowId> stacks_of_model = StacksOfModel(trace);
  // If another thread makes batches, it is a loader worker, and what the
  // training thread stacks is something else.
  std::vector<bool> backward(trace.threads().size());
  for (RowId row : AutogradThreads(context.tree, context.steps.thread)) {
    backward[row] = true;
  }
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const RowId thread = trace.ops()[row].thread;
    if (thread == kNone || thread == context.steps.thread || backward[thread] ||
        launches[row]) {
      continue;
    }
    if (MakesBatches(trace, row, stacks_of_model))
      return collation;  // made by a worker
  }
  const std::vector<Span> idle = Merge(IdleSpans(context.waits.idle));

  for (size_t i : context.steps.steady) {
    const Span& host = context.steps.windows[i].host;
    Span batch;
    for (RowId row : context.tree.of_thread(context.steps.thread, host)) {
      const Op& op = trace.ops()[row];
      // The model starts here. What it stacks is not a batch.
      if (context.tree.traits(row).matmul) break;
      if (launches[row] && batch.end_ns != 0) break;  // the batch is sent
      if (launches[row] || !MakesBatches(trace, row, stacks_of_model)) {
        continue;
      }
      if (batch.end_ns == 0) batch.begin_ns = op.begin_ns;
      batch.end_ns = std::max(batch.end_ns, op.end_ns);
    }
    if (batch.length() <= 0) continue;
    collation.spans.push_back(batch);
    collation.idle_ns += static_cast<double>(
        context.has_gpu ? LengthIn(idle, batch) : batch.length());
  }
  const auto steps = static_cast<double>(context.steps.steady.size());
  collation.idle_ns /= steps;
  collation.steps_frac = static_cast<double>(collation.spans.size()) / steps;
  return collation;
}

Collation FindPreparation(const AnalysisContext& context) {
  Collation made;
  if (context.steps.thread == kNone || context.has_gpu) return made;
  const std::vector<bool> model = OpsOfModel(context);
  const auto steps = static_cast<double>(context.steps.steady.size());
  for (size_t i : context.steps.steady) {
    const Span batch =
        PreparationIn(context, context.steps.windows[i].host, model);
    if (batch.length() <= 0) continue;
    // The program's own code before these ops also prepares the batch.
    made.spans.push_back(
        {context.steps.windows[i].host.begin_ns, batch.end_ns});
    made.idle_ns += static_cast<double>(made.spans.back().length() -
                                        ChoosingNs(context, batch)) /
                    steps;
    made.steps_frac += 1 / steps;
  }
  return made;
}

std::string LoaderName(const AnalysisContext& context) {
  for (const Loader& loader : context.trace.loaders()) {
    if (loader.name != 0) {
      return "loader \"" + std::string(context.trace.name(loader.name)) + "\"";
    }
  }
  return "";
}

// Tries fewer workers first: the engine takes the first of equal alternatives,
// and each worker costs memory.
std::vector<Alternative> WorkersToTry(const AnalysisContext& context, int from,
                                      int most) {
  const CpuProgram& program = context.replay.program();
  std::vector<Alternative> tried;
  const auto add = [&](Edit edit) {
    Wording fix = LoaderFix(context, edit);
    tried.push_back({.edit = std::move(edit), .wording = std::move(fix)});
  };
  most = std::min(most, from + kWorkersToTry);
  for (int workers = from; workers <= most; ++workers) {
    add({.workers = workers});
    const int left = program.cores - workers;
    if (program.threads > 1 && left >= 1 && left < program.threads) {
      add({.workers = workers, .threads = left});
    }
  }
  // The step as it is needs no more workers, but a plan may, because its other
  // changes make the step shorter.
  const int cores = CoresForLoading(context);
  const int free = context.has_gpu ? cores - 1 : cores;
  for (int workers = 2 * most; workers <= std::min(free, from + kWorkersToTry);
       workers *= 2) {
    add({.workers = workers});
  }
  return tried;
}

int CoresForLoading(const AnalysisContext& context) {
  int cores = context.trace.run().usable_cores;
  if (cores <= 0) return 0;
  return std::max(1, cores / std::max(1, context.trace.run().local_ranks));
}

Wording LoaderFix(const AnalysisContext& context, const Edit& edit) {
  Wording fix;
  const std::string n = std::to_string(edit.workers);
  fix.fix_cpp = "torch::data::DataLoaderOptions().workers(" + n +
                ").max_jobs(" + std::to_string(2 * edit.workers) + ")";
  fix.fix_python = "DataLoader(..., num_workers=" + n +
                   ", persistent_workers=True" +
                   (context.has_gpu ? ", pin_memory=True)" : ")");
  if (edit.threads > 0) {
    const std::string threads = std::to_string(edit.threads);
    fix.fix_cpp += "; at::set_num_threads(" + threads + ")";
    fix.fix_python += "; torch.set_num_threads(" + threads + ")";
  }
  return fix;
}

}  // namespace stepscope
