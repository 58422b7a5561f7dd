// Do convolutions convert tensors between channels-first and channels-last?
// Sources: PyTorch Performance Tuning Guide, "Use channels_last memory format";
// cuDNN's Tensor Core kernels take channels-last tensors. XProf calls 3 % of
// the kernel time or more moderate.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/kernel_evidence.h"
#include "ops/op_arguments.h"
#include "replay/cpu/op_growth.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace layout_rules {
namespace {

constexpr double kShare = 0.03;
constexpr int64_t kStemChannels = 4;

constexpr char kLayoutFixCpp[] =
    "for (auto& p : model->parameters()) if (p.dim() == 4) "
    "p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast)); convert the "
    "input likewise";
constexpr char kLayoutFixPython[] =
    "model.to(memory_format=torch.channels_last); x = "
    "x.to(memory_format=torch.channels_last)";

// The tensors of a convolution: input and weight, if they were recorded.
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

// True if dimension 1 is contiguous. 1 x 1 and single-channel tensors have both
// formats.
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
    // One convolution may launch several such kernels. Count it once.
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

// Returns the convolution that `row` is part of; kNone if there is none.
RowId ConvolutionAround(const Trace& trace, RowId row) {
  for (; row != kNone; row = trace.ops()[row].parent) {
    if (trace.name(trace.ops()[row].name).find("convolution") !=
        std::string_view::npos) {
      return row;
    }
  }
  return kNone;
}

// True if most kernels of convolutions take channels-last tensors, by their
// names.
bool KernelsTakeChannelsLast(const AnalysisContext& m) {
  int64_t known = 0, last = 0;
  for (const KernelUse& use : m.kernels.uses) {
    if (!use.multiplies || use.serves != KernelClass::kConvolution) continue;
    ++known;
    last += m.trace.name(m.trace.kernels()[use.kernel].name).find("nhwc") !=
            std::string_view::npos;
  }
  return 2 * last > known;
}

// True if `row`, or a convolution around it, convolves sequences. Their three
// dimensions have no channels-last format, even if oneDNN converts them
// internally.
bool ConvolvesSequences(const Trace& trace, RowId row) {
  while ((row = ConvolutionAround(trace, row)) != kNone) {
    if (TensorArgument(trace, row, 0).dims.size() == 3) return true;
    row = trace.ops()[row].parent;
  }
  return false;
}

// True if `row` copies a tensor for the convolution around it, whose kernels
// take another order of its elements: aten::_convolution calls contiguous().
bool CopiesForConvolution(const Trace& trace, RowId row) {
  const RowId convolution = ConvolutionAround(trace, row);
  if (convolution == kNone || ConvolvesSequences(trace, convolution) ||
      trace.name(trace.ops()[row].name) != "aten::copy_") {
    return false;
  }
  for (RowId at = row; at != convolution; at = trace.ops()[at].parent) {
    const std::string_view name = trace.name(trace.ops()[at].name);
    if (name == "aten::contiguous" || name == "aten::clone") return true;
  }
  return false;
}

// True for interpolation of channels-first images. On a CPU, interpolation
// computes in channels-last, so it converts its input and converts its result
// back.
bool Interpolates(const Trace& trace, RowId row) {
  if (!trace.name(trace.ops()[row].name).starts_with("aten::upsample_")) {
    return false;
  }
  const Argument* input = OperandsOf(trace, row).input;
  return input != nullptr && !IsChannelsLast(*input);
}

// Returns the convolution or interpolation that a copy between the formats is
// made for; kNone if there is none.
RowId ConvertedFor(const Trace& trace, RowId copy) {
  const RowId convolution = ConvolutionAround(trace, copy);
  if (convolution != kNone) {
    return ConvolvesSequences(trace, convolution) ? kNone : convolution;
  }
  for (RowId row = copy; row != kNone; row = trace.ops()[row].parent) {
    if (Interpolates(trace, row)) return row;
  }
  return kNone;
}

// True for a copy from one memory format to the other.
bool Converts(const Trace& trace, RowId row) {
  const Op& op = trace.ops()[row];
  if (trace.name(op.name) != "aten::copy_" || op.inputs == kNone) return false;
  const auto& arguments = trace.op_inputs()[op.inputs].arguments;
  if (arguments.size() < 2) return false;
  const Argument& to = arguments[0];
  const Argument& from = arguments[1];
  const bool image = to.dims.size() >= 4 && to.dims == from.dims &&
                     to.dims[1] > 1 && !to.strides.empty() &&
                     !from.strides.empty();
  return image && IsChannelsLast(to) != IsChannelsLast(from);
}

// Time in ns per step that format conversions cost convolutions and
// interpolation in a CPU-only run.
struct FormatCopies {
  double seen_ns = 0;        // copies from one format to the other
  double convolving_ns = 0;  // the part of it for convolutions
  double seen_bytes = 0;
  int64_t count = 0;     // in all steps
  double hidden_ns = 0;  // at most, inside convolutions
  RowId longest = kNone;
};

FormatCopies FindFormatCopies(const AnalysisContext& m) {
  FormatCopies found;
  std::vector<RowId> convolutions, all;
  std::map<RowId, double> copied;  // by convolution
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (!InSteadyStep(m.steps, op.begin_ns)) continue;
    const auto ns = static_cast<double>(op.end_ns - op.begin_ns);
    const RowId around =
        Converts(m.trace, row) ? ConvertedFor(m.trace, row) : kNone;
    if (around != kNone) {
      copied[around] += ns;
      found.seen_ns += ns;
      if (!Interpolates(m.trace, around)) found.convolving_ns += ns;
      found.seen_bytes += 2 * static_cast<double>(BytesOf(
                                  m.trace, TensorArgument(m.trace, row, 0)));
      ++found.count;
      const Op* longest =
          found.longest == kNone ? nullptr : &m.trace.ops()[found.longest];
      if (longest == nullptr ||
          ns > static_cast<double>(longest->end_ns - longest->begin_ns)) {
        found.longest = row;
      }
    }
    if (!m.tree.computes(row)) continue;
    all.push_back(row);
    if (m.tree.traits(row).kind == KernelClass::kConvolution &&
        !ConvolvesSequences(m.trace, row)) {
      convolutions.push_back(row);
    }
  }
  if (found.seen_ns <= 0) return found;
  // oneDNN also converts inside its ops. Estimate at most everything that they
  // read and write, at the rate of the copies, limited to the time that their
  // arithmetic does not need.
  const OpGrowth growth(m.trace, all);
  const double ns_per_byte = found.seen_ns / std::max(found.seen_bytes, 1.0);
  for (RowId row : convolutions) {
    const double arithmetic = growth.ArithmeticNs(row);
    if (arithmetic < 0) continue;
    const Op& op = m.trace.ops()[row];
    const double beyond =
        static_cast<double>(op.end_ns - op.begin_ns) - arithmetic - copied[row];
    const double moving =
        2 * std::max(0.0, CostOf(m.trace, row).bytes) * ns_per_byte;
    found.hidden_ns += std::max(0.0, std::min(beyond, moving));
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  found.seen_ns /= steps;
  found.convolving_ns /= steps;
  found.hidden_ns /= steps;
  return found;
}

// True if channels-last would slow down group or instance normalisation on a
// CPU: with their gradients they take two to eight times as long on
// channels-last tensors (torch 2.11, two cores, batches of 8 to 64 images of 16
// to 64 pixels a side and 32 or 64 channels). Batch normalisation takes half
// the time.
bool HasSlowNorms(const AnalysisContext& m) {
  return std::ranges::any_of(m.tree.of_thread(m.steps.thread), [&](RowId row) {
    const Op& op = m.trace.ops()[row];
    const std::string_view name = m.trace.name(op.name);
    return (name == "aten::group_norm" || name == "aten::instance_norm") &&
           InSteadyStep(m.steps, op.begin_ns);
  });
}

// A CPU-only run has no transposing kernels, but it has copies between ops.
Verdict CheckConversionsOnCpu(const AnalysisContext& m) {
  if (m.trace.op_inputs().empty()) {
    return Skip("the sizes of tensors were not recorded (record_shapes)");
  }
  const FormatCopies found = FindFormatCopies(m);
  if (found.seen_ns < kShare * m.step_ns() || HasSlowNorms(m)) return Clean();
  const double steps = static_cast<double>(m.steps.steady.size());
  const Op& op = m.trace.ops()[found.longest];
  // Convolutions may lose more by the format than the copies take
  // (tests/advice/programs/RESULTS.md, "channels-last on a CPU").
  const double interpolating_ns = found.seen_ns - found.convolving_ns;
  const bool sure = interpolating_ns >= kShare * m.step_ns();
  Finding finding;
  finding.confidence = sure ? Confidence::kStrong : Confidence::kHint;
  const char* who = found.convolving_ns <= 0 ? "Interpolation copies"
                    : found.convolving_ns < found.seen_ns
                        ? "Convolutions and interpolation copy"
                        : "Convolutions copy";
  finding.evidence =
      who + std::string(" tensors between channels-first and channels-last ") +
      Count(std::llround(static_cast<double>(found.count) / steps), "time") +
      " per step, which takes " + Milliseconds(found.seen_ns * 1e-6) + " (" +
      Percent(found.seen_ns / m.step_ns()) +
      " of the step). The recording does not show what convolutions convert "
      "internally.";
  if (!sure) {
    finding.evidence +=
        " On two cores, channels-last made 4 of 13 such programs faster, up to "
        "1.25 times, and 5 slower, up to 1.4 times: measure it.";
  }
  finding.examples.push_back(
      {m.steps.windows[SteadyStepAt(m.steps, op.begin_ns)].number, op.begin_ns,
       op.end_ns, OpWithShapes(m.trace, found.longest)});
  finding.where = std::string(
      m.trace.name(m.trace.ops()[ConvertedFor(m.trace, found.longest)].name));
  finding.assumption =
      "at best: nothing is converted, and convolutions reach the best rate of "
      "this recording; small images may gain nothing";
  finding.fix_cpp = kLayoutFixCpp;
  finding.fix_python = kLayoutFixPython;
  finding.wrong_if =
      "a layer without channels-last kernels converts tensors back";
  return Fire(Found{
      .finding = std::move(finding),
      .bound_ns = found.seen_ns + found.hidden_ns,
      .at_most = sure ? FindingSeverity::kMedium : FindingSeverity::kLow});
}

Verdict CheckLayoutTranspose(const AnalysisContext& m) {
  if (!m.has_gpu) return CheckConversionsOnCpu(m);
  if (!m.trace.watched(Kind::kKernel)) {
    return Skip("no kernel events were recorded");
  }
  const auto copies = [&](const KernelUse& use) {
    return !use.multiplies &&
           CopiesForConvolution(m.trace, m.trace.kernels()[use.kernel].op);
  };
  const KernelFilter wanted = [&](const KernelUse& use) {
    return use.serves == KernelClass::kConvolution &&
           (use.kind == KernelClass::kLayout || copies(use));
  };
  const double total =
      m.kernels.NsPerStep([](const KernelUse&) { return true; });
  const double ns = m.kernels.NsPerStep(wanted);
  if (ns <= 0 || ns < kShare * total) return Clean();
  // An image must be converted once in any case.
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
  finding.fix_cpp = kLayoutFixCpp;
  finding.fix_python = kLayoutFixPython;
  if (2 * m.kernels.NsPerStep(copies) > ns && KernelsTakeChannelsLast(m)) {
    finding.evidence +=
        " Their kernels take channels-last tensors, but what comes before "
        "makes channels-first ones, as contiguous() and reshape() do.";
    finding.fix_python =
        "keep the format in what comes before the convolution: "
        "contiguous(memory_format=torch.channels_last), "
        "torch.nn.functional.channel_shuffle or pixel_shuffle in place of "
        "view, transpose and contiguous()";
    finding.fix_cpp =
        "keep the format in what comes before the convolution: "
        "contiguous(at::MemoryFormat::ChannelsLast)";
  }
  finding.assumption =
      "tensors stay channels-last, so none is converted; the other kernels "
      "take as long as recorded";
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
     .question = "Do convolutions and interpolation convert tensors between "
                 "memory formats?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckLayoutTranspose,
     .reference = "PyTorch Performance Tuning Guide: Use channels_last memory "
                  "format for convolutional networks",
     .detect = "transposing kernels (nchwToNhwc, batched_transpose, ...) under "
               "convolutions, and copies that they make by contiguous(), take "
               "3 % of the kernel time or more; on a CPU, "
               "copies from one format to the other in convolutions, and in "
               "interpolation of channels-first images, take 3 % of the step; "
               "a hint if those in interpolation do not",
     .avoid =
         "only the first layer, which has few channels, is transposed; on "
         "a CPU, convolutions of sequences (conv1d), for which there is no "
         "channels-last format, and runs with group or instance "
         "normalisation, which is slower in that format",
     .fix_cpp = "parameters and input in at::MemoryFormat::ChannelsLast",
     .fix_python = "model and input .to(memory_format=torch.channels_last)",
     .change = "channels-last layout"}};

}  // namespace
}  // namespace layout_rules

extern const std::span<const Rule> kLayout = layout_rules::kRules;

}  // namespace stepscope
