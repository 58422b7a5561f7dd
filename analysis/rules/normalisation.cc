// Do convolutions add a bias that the next layer subtracts again?
// Source: PyTorch Performance Tuning Guide, "Disable bias for convolutions
// directly followed by a batch norm"; "17 tips", number 15. The gain is small.
#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace normalisation_rules {
namespace {

// Indices of arguments: a convolution's bias, a batch norm's training flag.
constexpr size_t kBias = 2, kTraining = 5;

bool IsConvolution(std::string_view name) {
  return name == "aten::conv1d" || name == "aten::conv2d" ||
         name == "aten::conv3d" || name == "aten::convolution";
}
bool IsBatchNorm(std::string_view name) {
  return name == "aten::batch_norm" || name == "aten::_batch_norm_impl_index" ||
         name == "aten::native_batch_norm" || name == "aten::cudnn_batch_norm";
}

const std::vector<Argument>* ArgumentsOf(const Trace& trace, RowId op) {
  const RowId inputs = trace.ops()[op].inputs;
  return inputs == kNone ? nullptr : &trace.op_inputs()[inputs].arguments;
}

// Returns the number of channels of a convolution's bias; -1 if it has no bias.
int64_t BiasedChannels(const Trace& trace, RowId op) {
  const std::vector<Argument>* arguments = ArgumentsOf(trace, op);
  if (arguments == nullptr || arguments->size() <= kBias) return -1;
  const Argument& bias = (*arguments)[kBias];
  return bias.dims.size() == 1 ? bias.dims[0] : -1;
}

// True for a batch norm over `channels` that uses the statistics of the batch.
bool NormalisesBatch(const Trace& trace, RowId op, int64_t channels) {
  const std::vector<Argument>* arguments = ArgumentsOf(trace, op);
  return IsBatchNorm(trace.name(trace.ops()[op].name)) &&
         arguments != nullptr && arguments->size() > kTraining &&
         (*arguments)[0].dims.size() >= 2 &&
         (*arguments)[0].dims[1] == channels &&
         trace.name((*arguments)[kTraining].concrete) == "True";
}

// True for num_batches_tracked.add_(1), which a batch norm module calls before
// the norm: add_ on an integer scalar (in C++, one add_ inside another).
bool CountsBatches(const Trace& trace, RowId row) {
  const Op& op = trace.ops()[row];
  if (trace.name(op.name) != "aten::add_" || op.inputs == kNone) return false;
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  return !arguments.empty() && arguments[0].dims.empty() &&
         trace.name(arguments[0].type).starts_with("long");
}

// Returns outermost convolutions with a bias whose next sibling is a batch
// norm.
std::vector<RowId> FindPairs(const AnalysisContext& m) {
  std::vector<RowId> found;
  RowId candidate = kNone;
  int64_t channels = -1;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (candidate != kNone) {
      const Op& convolution = m.trace.ops()[candidate];
      if (op.begin_ns < convolution.end_ns) continue;  // inside it
      if (CountsBatches(m.trace, row) ||
          (op.parent == convolution.parent && m.tree.traits(row).bookkeeping)) {
        continue;
      }
      if (op.parent == convolution.parent &&
          NormalisesBatch(m.trace, row, channels)) {
        found.push_back(candidate);
      }
      candidate = kNone;
    }
    if (!IsConvolution(m.trace.name(op.name))) continue;
    if (op.parent != kNone &&
        IsConvolution(m.trace.name(m.trace.ops()[op.parent].name))) {
      continue;
    }
    channels = BiasedChannels(m.trace, row);
    if (channels > 0) candidate = row;
  }
  return found;
}

// Returns, by op, whether it belongs to the forward or backward pass of a
// convolution in `pairs`. Elementwise kernels of these ops add the bias, and
// reductions sum the bias's gradient.
std::vector<bool> OpsOfBias(const AnalysisContext& m,
                            const std::vector<RowId>& pairs) {
  const std::unordered_set<RowId> forward(pairs.begin(), pairs.end());
  std::unordered_set<int64_t> numbers;
  for (RowId row : pairs) {
    if (m.trace.ops()[row].sequence >= 0) {
      numbers.insert(m.trace.ops()[row].sequence);
    }
  }
  std::vector<bool> below(m.trace.ops().size());
  for (RowId row = 0; row < below.size(); ++row) {
    const Op& op = m.trace.ops()[row];
    below[row] = (op.parent != kNone && below[op.parent]) ||
                 forward.contains(row) ||
                 (op.kind == OpKind::kBackward && op.sequence >= 0 &&
                  numbers.contains(op.sequence));
  }
  return below;
}

Verdict CheckBiasBeforeNorm(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<RowId> pairs = FindPairs(m);
  if (pairs.empty()) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  for (size_t i = 0; i < std::min<size_t>(3, pairs.size()); ++i) {
    const Op& op = m.trace.ops()[pairs[i]];
    finding.examples.push_back(
        {-1, op.begin_ns, op.end_ns, OpWithShapes(m.trace, pairs[i])});
  }
  const auto per_step = static_cast<int64_t>(pairs.size()) /
                        static_cast<int64_t>(m.steps.windows.size());
  finding.evidence = Count(std::max<int64_t>(1, per_step), "convolution") +
                     " per step " + (per_step > 1 ? "add" : "adds") +
                     " a bias that the next batch norm subtracts again.";
  finding.where = finding.examples.front().what;
  finding.fix_cpp = "torch::nn::Conv2dOptions(...).bias(false)";
  finding.fix_python = "nn.Conv2d(..., bias=False)";
  finding.wrong_if = "the batch norm uses fixed statistics";
  if (!m.has_gpu) {
    finding.assumption =
        "on a CPU the gain is close to zero, because the bias is fused";
    return Fire(std::move(finding));
  }
  const std::vector<bool> below = OpsOfBias(m, pairs);
  const KernelFilter wanted = [&](const KernelUse& use) {
    const RowId op = m.trace.kernels()[use.kernel].op;
    return op != kNone && below[op] &&
           (use.kind == KernelClass::kElementwise ||
            use.kind == KernelClass::kReduction);
  };
  Edit edit;
  DropLaunches(m, wanted, edit);
  const double ns = m.kernels.NsPerStep(wanted);
  finding.evidence += " Adding it and summing its gradient take " +
                      Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption = "these kernels are removed; nothing else changes";
  return Fire(std::move(finding), std::move(edit), ns);
}

constexpr Rule kRules[] = {
    {.id = "bias-before-norm",
     .question =
         "Do convolutions add a bias that the next batch norm subtracts again?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckBiasBeforeNorm,
     .reference = "PyTorch Performance Tuning Guide: Disable bias for "
                  "convolutions directly followed by a batch norm",
     .detect = "the next op after a convolution with a bias is a batch norm in "
               "training mode over the same channels",
     .avoid = "an activation lies in between, or the norm is a frozen batch "
              "norm or a layer norm",
     .fix_cpp = "Conv2dOptions(...).bias(false)",
     .fix_python = "nn.Conv2d(..., bias=False)",
     .change = "no bias before norms"}};

}  // namespace
}  // namespace normalisation_rules

extern const std::span<const Rule> kNormalisation = normalisation_rules::kRules;

}  // namespace stepscope
