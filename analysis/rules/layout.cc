// Do convolutions convert tensors between channels-first and channels-last?
// Sources: PyTorch Performance Tuning Guide, "Use channels_last memory format";
// cuDNN's Tensor Core kernels take channels-last tensors. XProf calls 3 % of
// the kernel time or more moderate.
#include <algorithm>
#include <string>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kShare = 0.03;
constexpr int64_t kStemChannels = 4;

// The tensors of a convolution: input and weight where they were recorded.
struct Operands {
  const Argument* input = nullptr;
  const Argument* weight = nullptr;
};
Operands OperandsOf(const Trace& trace, RowId op) {
  Operands found;
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return found;
  for (const Argument& argument : trace.op_inputs()[inputs].arguments) {
    if (argument.dims.size() < 4) continue;
    (found.input == nullptr ? found.input : found.weight) = &argument;
    if (found.weight != nullptr) break;
  }
  return found;
}

// True for a network's first convolution, whose input is an image with few
// channels.
bool IsStem(const Trace& trace, RowId op) {
  const Operands operands = OperandsOf(trace, op);
  return operands.weight != nullptr &&
         operands.weight->dims[1] <= kStemChannels;
}

// True if dimension 1 is contiguous. 1 x 1 and single-channel tensors are in
// both formats.
bool IsChannelsLast(const Argument& tensor) {
  return tensor.strides.size() >= 4 && tensor.strides[1] == 1;
}

struct Layouts {
  int64_t weight_first = 0, input_first = 0, known = 0;
};
Layouts CountLayouts(const AnalysisContext& m, const KernelFilter& wanted) {
  Layouts layouts;
  RowId last = kNone;
  for (const KernelUse& use : m.kernels.uses) {
    // One convolution may launch several such kernels.
    if (!wanted(use) || use.op == last) continue;
    last = use.op;
    const Operands operands = OperandsOf(m.trace, use.op);
    if (operands.weight == nullptr || operands.weight->strides.empty()) {
      continue;
    }
    ++layouts.known;
    layouts.weight_first += !IsChannelsLast(*operands.weight);
    layouts.input_first += !IsChannelsLast(*operands.input);
  }
  return layouts;
}

std::string WhatIsFirst(const Layouts& layouts) {
  if (layouts.known == 0) return "";
  const bool weights = 2 * layouts.weight_first > layouts.known;
  const bool inputs = 2 * layouts.input_first > layouts.known;
  if (weights && inputs) return " Model and input are channels-first.";
  if (weights) {
    return " The input is channels-last, but the weights are not: convert the "
           "model as well.";
  }
  if (inputs) {
    return " The weights are channels-last, but the input is not: convert it "
           "before the first layer.";
  }
  return "";
}

Verdict CheckLayoutTranspose(const AnalysisContext& m) {
  const KernelFilter wanted = [](const KernelUse& use) {
    return use.kind == KernelClass::kLayout &&
           use.serves == KernelClass::kConvolution;
  };
  const double total =
      m.kernels.NsPerStep([](const KernelUse&) { return true; });
  const double ns = m.kernels.NsPerStep(wanted);
  if (ns <= 0 || ns < kShare * total) return Clean();
  // An image has to be converted once in any case.
  const double stem = m.kernels.NsPerStep([&](const KernelUse& use) {
    return wanted(use) && IsStem(m.trace, use.op);
  });
  if (ns - stem < kShare * total) return Clean();

  int64_t count = 0;
  for (const KernelUse& use : m.kernels.uses) count += wanted(use);
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.examples = LongestKernels(m, wanted);
  finding.evidence =
      "Convolutions convert tensors between channels-first and channels-last, "
      "which takes " +
      Count(static_cast<int64_t>(count / m.kernels.steps), "kernel") + " and " +
      Milliseconds(ns * 1e-6) + " per step (" + Percent(ns / total) +
      " of the kernel time)." + WhatIsFirst(CountLayouts(m, wanted));
  finding.assumption =
      "tensors stay channels-last, so none is converted; the other kernels "
      "take as long as recorded";
  finding.fix_cpp =
      "for (auto& p : model->parameters()) if (p.dim() == 4) "
      "p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast)); convert the "
      "input likewise";
  finding.fix_python =
      "model.to(memory_format=torch.channels_last); x = "
      "x.to(memory_format=torch.channels_last)";
  if (IsAmd(m.kernels.device)) {
    finding.fix_python += "; on ROCm also PYTORCH_MIOPEN_SUGGEST_NHWC=1";
  }
  finding.wrong_if =
      "a layer without channels-last kernels converts tensors back";
  Edit edit;
  DropLaunches(m, wanted, edit);
  return FireForKernels(m, std::move(finding), std::move(edit), ns);
}

constexpr Rule kRules[] = {
    {.id = "layout-transpose",
     .question = "Do convolutions convert tensors between memory formats?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .check = &CheckLayoutTranspose,
     .reference = "PyTorch Performance Tuning Guide: Use channels_last memory "
                  "format for convolutional networks",
     .detect = "transposing kernels (nchwToNhwc, batched_transpose, ...) under "
               "convolutions take 3 % of the kernel time or more",
     .avoid = "only the first layer, which has few channels, is transposed",
     .fix_cpp = "parameters and input in at::MemoryFormat::ChannelsLast",
     .fix_python = "model and input .to(memory_format=torch.channels_last)"}};

}  // namespace

extern const std::span<const Rule> kLayout = kRules;

}  // namespace stepscope
