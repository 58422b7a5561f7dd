// Are gradients accumulated over micro-batches that would fit as one? Source:
// Hugging Face Transformers, "Methods and tools for efficient training on a
// single GPU": accumulate gradients only if the batch does not fit, because
// each micro-batch adds to all gradients and reads all weights again.
#include <stepscope/device_peaks.h>
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/device_memory_use.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/intervals.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace micro_batches_rules {
namespace {

// With fewer, the micro-batch would not become larger.
constexpr double kLeastMerged = 2;

// Gradients that passes keep, and how many of these are added to earlier ones.
struct KeptCount {
  size_t kept = 0, adding = 0;
};

void AddKept(const GraphWalk& pass, KeptCount& count) {
  for (const WalkedNode& node : pass.nodes) {
    for (const KeptGradient& one : node.kept) {
      ++count.kept;
      count.adding += one.adds;
    }
  }
}

// How many updates the optimizer makes in the steady steps.
size_t UpdatesIn(const AnalysisContext& m) {
  return static_cast<size_t>(std::ranges::count_if(
      m.parts.optimizer.spans,
      [&](const Span& span) { return InSteadyStep(m.steps, span.begin_ns); }));
}

// How gradients are accumulated in the steady steps.
struct Accumulation {
  double passes = 1;  // per step: backward passes, of which all but one add
  std::map<Dims, size_t> parameters = {};  // by size
};

Accumulation FindAccumulation(const AnalysisContext& m) {
  const std::vector<GraphWalk>& passes = m.graph_walks;
  Accumulation found{.parameters = ParametersBySize(passes)};
  KeptCount all;
  for (const GraphWalk& pass : passes) AddKept(pass, all);
  // If all passes add, they add to gradients filled with zeros.
  const size_t first = all.kept - all.adding;
  if (first < m.steps.steady.size()) return found;
  // In a single pass, most gradients are also added where the optimizer trains
  // a few parameters and clears only theirs. Nothing is accumulated then.
  const size_t updates =
      std::clamp<size_t>(UpdatesIn(m), 1, m.steps.steady.size());
  found.passes = std::min(
      std::floor(static_cast<double>(all.kept) / static_cast<double>(first)),
      static_cast<double>(passes.size()) / static_cast<double>(updates));
  return found;
}

// Kernel time per step that merging `merged` micro-batches saves at best.
struct Saved {
  double adding_ns = 0;    // adding gradients to earlier ones
  double weights_ns = 0;   // casts and gradients as large as a weight: one of
                           // each remains
  double products_ns = 0;  // products limited by reading their weights
  double ns() const { return adding_ns + weights_ns + products_ns; }
};

// Returns the bytes of the largest of a product's three matrices. If a
// micro-batch has few rows, that is the weight or its gradient.
double LargestMatrix(const MatmulShape& sizes, double bytes) {
  const auto area = [](int64_t a, int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  const double all =
      area(sizes.m, sizes.k) + area(sizes.k, sizes.n) + area(sizes.m, sizes.n);
  const double largest = std::max(
      {area(sizes.m, sizes.k), area(sizes.k, sizes.n), area(sizes.m, sizes.n)});
  return all > 0 ? bytes * largest / all : 0;
}

Saved SavedBy(const AnalysisContext& m, const Accumulation& now,
              double merged) {
  const Roofline roofline(m.kernels);
  Saved saved;
  for (const KernelUse& use : m.kernels.uses) {
    if (use.in_optimizer) continue;
    const RowId op = m.trace.kernels()[use.kernel].op;
    if (op == kNone) continue;
    const std::string_view name = PlainNameOf(m.trace, op);
    // A cast of a weight is a copy or, in compiled code, a kernel whose name
    // starts with triton_poi_fused__to_copy_.
    if (AddsToGradient(m.trace, op)) {
      saved.adding_ns += use.ns;
    } else if (IsAnyOf(name, {"copy", "_to_copy", "to"})
                   ? now.parameters.contains(DimsOf(m.trace, op, 0))
                   : Contains(name, "embedding_dense_backward") ||
                         m.trace.name(m.trace.kernels()[use.kernel].name)
                             .starts_with("triton_poi_fused__to_copy_")) {
      saved.weights_ns += use.ns * (1 - 1 / merged);
    } else if (use.multiplies && use.serves == KernelClass::kMatmul &&
               use.flops > 0 && use.bytes > 0) {
      const MatmulShape sizes = CostOf(m.trace, use.op).matmul;
      const double fixed = LargestMatrix(sizes, use.bytes);
      // Assume that it stays as far from the rate of good kernels as now.
      const double now_ns = roofline.Ns(use.precision, use.flops, use.bytes);
      const double left_ns = roofline.Ns(use.precision, use.flops,
                                         use.bytes - fixed + fixed / merged);
      if (now_ns > 0) saved.products_ns += use.ns * (1 - left_ns / now_ns);
    }
  }
  const double steps = std::max(m.kernels.steps, 1.0);
  // The first micro-batch of a step adds nothing.
  saved.adding_ns *= (1 - 1 / merged) / (1 - 1 / now.passes) / steps;
  saved.weights_ns /= steps;
  saved.products_ns /= steps;
  return saved;
}

// --- on a CPU

// Fewer passes may be wanted for the memory. Our own choice: so many passes of
// one update are urged only from here on.
constexpr double kFewPasses = 4, kManyPasses = 8;
// Products with more rows than a core has registers for keep it busy: oneDNN's
// kernels take blocks of up to 32 rows or so.
constexpr double kFewRows = 32;
// Passes of one network over batches of equal sizes run equally many nodes,
// but for a smaller last batch.
constexpr double kAlike = 0.1;

// True if the training thread runs a product in `span`, as a forward pass does.
bool HasForwardPass(const AnalysisContext& m, Span span) {
  return std::ranges::any_of(
      m.tree.of_thread(m.steps.thread, span), [&](RowId row) {
        return m.tree.traits(row).matmul && !m.tree.in_backward(row);
      });
}

// The backward passes of one network that add up gradients for an update.
struct Passes {
  double per_update = 0;  // 0 if unknown
  double rows = 0;        // samples in the median forward product; 0: unknown
};

// Appends the rows of the layers' inputs in `span`.
void AppendRows(const AnalysisContext& m, Span span,
                std::vector<double>& rows) {
  for (RowId row : m.tree.of_thread(m.steps.thread, span)) {
    const size_t weight = WeightArgument(m.trace, row);
    if (weight == 0 || m.tree.in_backward(row)) continue;
    const Dims& input = DimsOf(m.trace, row, weight - 1);
    if (input.empty()) continue;
    // A convolution takes one sample per row, a linear layer vectors.
    rows.push_back(
        m.tree.traits(row).kind == KernelClass::kConvolution
            ? static_cast<double>(input.front())
            : static_cast<double>(ElementsIn(input)) /
                  static_cast<double>(std::max<int64_t>(1, input.back())));
  }
}

// Finds passes that each have a forward pass of their own. Hooks of modules may
// add up gradients themselves, as Opacus does, and then every pass counts. A
// solver that calls backward() again for the same update (LBFGS) clears the
// gradients before, and networks of an ensemble have gradients of their own.
Passes FindPasses(const AnalysisContext& m) {
  if (m.parts.optimizer.inferred || m.steps.thread == kNone) return {};
  std::vector<double> nodes, rows;
  double adding = 0;
  int64_t before_ns = INT64_MIN;
  for (const GraphWalk& pass : m.graph_walks) {
    const Span forward{
        std::max(before_ns, m.steps.windows[pass.step].host.begin_ns),
        pass.span.begin_ns};
    before_ns = pass.span.end_ns;
    KeptCount of_pass;
    AddKept(pass, of_pass);
    if (of_pass.kept == 0 || !HasForwardPass(m, forward)) continue;
    nodes.push_back(static_cast<double>(pass.nodes.size()));
    // Most of its gradients are added to those of the pass before.
    adding += 2 * of_pass.adding > of_pass.kept;
    AppendRows(m, forward, rows);
  }
  const auto updates = static_cast<double>(UpdatesIn(m));
  if (nodes.empty() || updates == 0) return {};
  const double usual = Median(nodes);
  const auto alike =
      static_cast<double>(std::ranges::count_if(nodes, [&](double count) {
        return std::abs(count - usual) <= kAlike * usual;
      }));
  // If all passes add, they add to gradients filled with zeros.
  const bool fills = adding >= static_cast<double>(nodes.size());
  const double counted = HasModuleHooks(m.trace) ? alike
                         : fills                 ? 0
                                 : std::min(alike, adding + updates);
  return {.per_update = counted / updates,
          .rows = rows.empty() ? 0 : Median(std::move(rows))};
}

// The time per step outside the loader and the optimizer.
double PassesNs(const AnalysisContext& m) {
  double ns = m.gain_step_ms() * 1e6 - m.MeanNs(Cause::kData);
  for (size_t i : m.steps.steady) {
    ns -= static_cast<double>(
              LengthIn(m.parts.optimizer.spans, m.steps.windows[i].host)) /
          static_cast<double>(m.steps.steady.size());
  }
  return std::max(0.0, ns);
}

Verdict CheckManyPasses(const AnalysisContext& m) {
  const Passes passes = FindPasses(m);
  if (passes.per_update < kFewPasses) return Clean();
  const bool few_rows = passes.rows > 0 && passes.rows <= kFewRows;
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "Each update of the optimizer follows " +
      MeanCount(passes.per_update, "backward pass", "backward passes") +
      " of the same network" +
      (passes.rows > 0
           ? ", whose products take " + Times(passes.rows) + " rows each"
           : "") +
      ". Each pass reads all weights and makes all gradients" +
      (few_rows ? ", and ops on few rows do not use the cores well." : ".");
  finding.assumption =
      "at best: one pass over all samples takes as long as one over few";
  finding.fix_python =
      "pass larger batches through the network, as many as fit into memory, "
      "and accumulate less often (Opacus: a larger max_physical_batch_size)";
  finding.fix_cpp =
      "pass larger batches through the network, as many as fit into memory, "
      "and accumulate less often";
  finding.wrong_if =
      "larger batches do not fit into memory, or one pass keeps all cores busy";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = (1 - 1 / passes.per_update) * PassesNs(m),
                    .at_most = few_rows && passes.per_update >= kManyPasses
                                   ? FindingSeverity::kMedium
                                   : FindingSeverity::kLow});
}

Verdict CheckSmallMicroBatches(const AnalysisContext& m) {
  if (!m.has_gpu) return CheckManyPasses(m);
  if (!m.ledger || m.kernels.uses.empty()) return Clean();
  const Accumulation now = FindAccumulation(m);
  if (now.passes < kLeastMerged) return Clean();
  const DeviceMemoryUse memory = MeasureDeviceMemory(m);
  const double headroom = memory.total > 0 ? memory.headroom() : -1;
  if (headroom >= 0 && headroom < kLeastMerged) return Clean();
  const double merged =
      headroom >= 0 ? std::min(now.passes, std::floor(headroom)) : now.passes;
  const Saved saved = SavedBy(m, now, merged);
  Finding finding;
  finding.confidence = headroom >= 0 ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      "Gradients are accumulated over " +
      Count(static_cast<int64_t>(now.passes), "micro-batch", "micro-batches") +
      " per step" +
      (headroom >= 0 ? ", although the memory would hold " + Factor(headroom) +
                           " the activations of one"
                     : "; whether memory is free was not recorded") +
      ". Each of them adds to all gradients, which takes " +
      Milliseconds(saved.adding_ns * 1e-6) +
      " per step, makes casts or gradients as large as a weight (" +
      Milliseconds(saved.weights_ns * 1e-6) +
      " can be saved), and reads the weights for products (" +
      Milliseconds(saved.products_ns * 1e-6) + ").";
  finding.assumption =
      "at best: weights are read and added to once for all merged "
      "micro-batches, and products move so many bytes less";
  finding.fix_python = finding.fix_cpp =
      "make the micro-batch " + Times(merged) +
      " times as large and accumulate as many times less often: the gradients "
      "are the same" +
      std::string(merged < now.passes ? "" : ", and no accumulation is left");
  finding.wrong_if =
      "batch normalisation sees the larger batch; longer samples than the "
      "recorded ones need the memory; or the passes are of several losses";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = saved.ns(),
                    .at_most = headroom >= 0 ? FindingSeverity::kCritical
                                             : FindingSeverity::kLow});
}

constexpr Rule kRules[] = {
    {.id = "small-micro-batches",
     .question = "Are gradients accumulated over micro-batches that would fit "
                 "as one?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckSmallMicroBatches,
     .reference = "Hugging Face Transformers, GPU training: gradient "
                  "accumulation: https://huggingface.co/docs/transformers/"
                  "perf_train_gpu_one",
     .detect =
         "in each step, a backward pass or more adds to gradients that are "
         "kept, and memory was recorded with room for twice the activations "
         "(a hint that is low at most where it was not recorded); what this "
         "adds to gradients, casts of weights and memory-bound products takes "
         "1 % of the step. On a CPU: an update follows four backward passes "
         "or more of one network that add up gradients (low, unless there are "
         "eight or more, whose products take 32 rows or fewer)",
     .avoid = "there is no room for a micro-batch twice as large; each pass "
              "has an update of its own, as in PPO",
     .fix_cpp = "larger micro-batches, accumulated less often",
     .fix_python = "larger micro-batches, accumulated less often"}};

}  // namespace
}  // namespace micro_batches_rules

extern const std::span<const Rule> kMicroBatches = micro_batches_rules::kRules;

}  // namespace stepscope
