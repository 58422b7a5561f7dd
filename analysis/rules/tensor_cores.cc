// Do matrix products and convolutions use the Tensor Cores? Sources: PyTorch
// Performance Tuning Guide, "Use mixed precision" (up to 3x) and "sizes in
// multiples of 8"; the ResNet-18 case study, step 6 (1670 to 2477 images/s). If
// products take 10 % of the compute time, making them twice as fast gains 5 %
// of a GPU-bound step.
#include <stepscope/device_peaks.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "context/rule.h"
#include "device/convolution_calls.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace tensor_cores_rules {
namespace {

constexpr double kShare = 0.10;
// Without shapes and tiles, assume half the time, as users of the guide report.
constexpr double kWithoutShapes = 0.5;
constexpr double kShortNs = 10'000;  // shorter kernels are mostly latency
// If counters show the Tensor Cores at least this busy, the kernel names are
// wrong. Products that do not use them leave them at 0.
constexpr double kBusy = 0.10;
constexpr double kLeastMeasuredNs = 3'000'000;  // the length of some samples
constexpr const char* kUnknownDevice =
    "the device's compute capability was not recorded";

bool IsFp32Simt(const KernelUse& use) {
  return use.eligible && use.tensor_cores == TensorCores::kNo &&
         use.precision == Precision::kFp32;
}
bool Is16BitSimt(const KernelUse& use) {
  return use.eligible && use.tensor_cores == TensorCores::kNo &&
         Is16Bit(use.precision);
}
bool IsTf32(const KernelUse& use) {
  return use.eligible && use.tensor_cores == TensorCores::kYes &&
         use.precision == Precision::kTf32;
}
// True for kernels, other than products, that autocast would run in 16 bits.
bool IsPointwiseFp32(const KernelUse& use) {
  return !use.in_optimizer && use.precision == Precision::kFp32 &&
         use.ns > kShortNs &&
         (use.kind == KernelClass::kElementwise ||
          use.kind == KernelClass::kNormalisation ||
          use.kind == KernelClass::kLayout || use.kind == KernelClass::kCopy);
}

bool DeviceKnown(const KernelUses& kernels) {
  return kernels.device.compute_major >= 0 || kernels.peaks.known() ||
         IsAmd(kernels.device);
}

// Returns the sizes of the part of the result that one block computes, from the
// kernel's name: 128 and 64 in "ampere_sgemm_128x64_nt". Zeros if it has none.
std::pair<int64_t, int64_t> TileOf(std::string_view name) {
  constexpr int64_t kLeast = 16, kMost = 512;
  for (size_t x = name.find('x'); x != std::string_view::npos;
       x = name.find('x', x + 1)) {
    size_t begin = x;
    while (begin > 0 && std::isdigit(name[begin - 1]) != 0) --begin;
    int64_t rows = 0, columns = 0;
    std::from_chars(name.data() + begin, name.data() + x, rows);
    std::from_chars(name.data() + x + 1, name.data() + name.size(), columns);
    if (rows >= kLeast && rows <= kMost && columns >= kLeast &&
        columns <= kMost) {
      return {rows, columns};
    }
  }
  return {};
}

// Returns the factor for a product of unknown sizes that runs without Tensor
// Cores in float32. The grid and the tile tell the size of the result. With
// blocks for all multiprocessors, such a kernel is limited by its arithmetic,
// so its time tells the operations. The Tensor Cores are assumed to reach the
// same share of their peak, unless memory limits them.
double FactorWithoutSizes(const AnalysisContext& m, const KernelUse& use,
                          Precision precision) {
  const KernelUses& kernels = m.kernels;
  const Kernel& kernel = m.trace.kernels()[use.kernel];
  const auto [rows, columns] = TileOf(m.trace.name(kernel.name));
  const auto blocks =
      static_cast<double>(kernel.grid[0]) * kernel.grid[1] * kernel.grid[2];
  const double from = kernels.peaks.fp32;
  const double to = NominalFlops(kernels.peaks, precision);
  if (!IsFp32Simt(use) || use.kind != KernelClass::kMatmul || rows == 0 ||
      !kernels.peaks.exact || kernels.device.sm_count <= 0 ||
      blocks < kernels.device.sm_count || from <= 0 || to <= from) {
    return kWithoutShapes;
  }
  const double results = blocks * static_cast<double>(rows * columns);
  const double inner = use.ns * kGoodCompute * from / (2 * results);
  // As if the result were square, which needs the fewest operands.
  const double numbers = results + 2 * std::sqrt(results) * inner;
  const double width = Is16Bit(precision) ? 2 : 4;
  const double memory_ns =
      width * numbers / (kGoodBandwidth * kernels.peaks.bytes_per_ns);
  return std::clamp(std::max(from / to, memory_ns / use.ns), 0.0,
                    kWithoutShapes);
}

// Returns the time of a kernel in another precision, as a share of its recorded
// time.
double FactorIn(const AnalysisContext& m, const Roofline& roofline,
                const KernelUse& use, Precision precision) {
  // Types of half the width move half the bytes.
  const bool halves = Is16Bit(precision) && !Is16Bit(use.precision);
  const double bytes = use.bytes < 0 ? -1 : use.bytes / (halves ? 2 : 1);
  const double floor = roofline.Ns(precision, use.flops, bytes);
  if (use.flops < 0 || floor <= 0) {
    return FactorWithoutSizes(m, use, precision);
  }
  // 16-bit units are only twice as fast as TF32 units, however far the recorded
  // kernel is from its peak.
  const double least = use.precision == Precision::kTf32 ? 0.5 : 0.0;
  return std::clamp(floor / std::max(use.ns, 1.0), least, 1.0);
}

struct Change {
  Edit edit;
  double saved_ns = 0;  // kernel time per step
};

Change InPrecision(const AnalysisContext& m, const KernelFilter& wanted,
                   Precision precision) {
  const KernelUses& kernels = m.kernels;
  const Roofline roofline(kernels);
  Change change;
  for (const KernelUse& use : kernels.uses) {
    if (!wanted(use)) continue;
    const double factor = FactorIn(m, roofline, use, precision);
    if (factor >= 1) continue;
    change.edit.scales.push_back(Scaled(use, factor));
    change.saved_ns += (1 - factor) * use.ns;
  }
  change.saved_ns /= std::max(kernels.steps, 1.0);
  return change;
}

const Settings* LatestSettings(const Trace& trace) {
  return trace.settings().empty() ? nullptr : &trace.settings().back();
}

std::string OfCompute(const KernelUses& kernels, double ns) {
  return Milliseconds(ns * 1e-6) + " per step (" +
         Percent(ns / std::max(kernels.compute_ns, 1.0)) +
         " of the GPU's compute time)";
}

// Returns " Hardware counters saw ..."; "" without counters.
std::string MeasuredInWords(const AnalysisContext& m,
                            const KernelFilter& wanted) {
  const MeasuredTensorCores during = TensorCoresDuring(m, wanted);
  if (during.ns >= kLeastMeasuredNs) {
    return " Hardware counters measured it: while these kernels ran, the "
           "Tensor "
           "Cores were active " +
           Percent(during.active_frac) + " of the time.";
  }
  const MeasuredTensorCores steps = TensorCoresInSteps(m);
  if (steps.ns < kLeastMeasuredNs) return "";
  return " Hardware counters saw the Tensor Cores active " +
         Percent(steps.active_frac) + " of the time in these steps.";
}

Verdict CheckTensorCoresIdle(const AnalysisContext& m) {
  const KernelUses& kernels = m.kernels;
  if (kernels.uses.empty()) return Clean();
  if (!DeviceKnown(kernels)) return Skip(kUnknownDevice);
  if (!HasTensorCores(kernels.device)) return Clean();

  double fp32 = kernels.NsPerStep(IsFp32Simt);
  double half = kernels.NsPerStep(Is16BitSimt);
  const double tf32 = kernels.NsPerStep(IsTf32);
  const double limit = kShare * kernels.compute_ns;
  // Test early, because it is cheap, and leaving out cuDNN's trials can only
  // lower the times.
  if (std::max(fp32 + half, tf32) < limit) return Clean();
  // Kernels that cuDNN only tries out are not the program's choice.
  const ConvolutionCalls convolutions(m.trace);
  const auto tried = [&](const KernelUse& use) {
    return convolutions.Searches(m.trace.kernels()[use.kernel].op);
  };
  fp32 -= kernels.NsPerStep(
      [&](const KernelUse& use) { return IsFp32Simt(use) && tried(use); });
  half -= kernels.NsPerStep(
      [&](const KernelUse& use) { return Is16BitSimt(use) && tried(use); });
  if (std::max(fp32 + half, tf32) < limit) return Clean();
  const bool simt = fp32 + half >= limit;
  // The type is right, but the sizes do not suit Tensor Cores.
  const bool only_half = simt && half > fp32;
  // Before Ampere, Tensor Cores multiply float16 but not bfloat16.
  const bool wrong_half =
      only_half && !HasBf16(kernels.device) &&
      2 * kernels.NsPerStep([](const KernelUse& use) {
        return Is16BitSimt(use) && use.precision == Precision::kBf16;
      }) > half;
  const KernelFilter wanted = [&](const KernelUse& use) {
    return !tried(use) && ((simt && Is16BitSimt(use)) ||
                           (!only_half && (IsFp32Simt(use) || IsTf32(use))));
  };
  // Measurements overrule kernel names. TF32 is left out, because it also runs
  // on Tensor Cores.
  if (simt) {
    const MeasuredTensorCores during = TensorCoresDuring(m, wanted);
    if (during.ns >= kLeastMeasuredNs && during.active_frac >= kBusy) {
      return Clean();
    }
  }
  Change change = InPrecision(m, wanted, Precision::kBf16);
  const double saved_by_products = change.saved_ns;
  // Autocast also runs pointwise ops in 16 bits. Memory limits them, so half
  // the bytes take half the time.
  if (!only_half) {
    for (const KernelUse& use : kernels.uses) {
      if (!IsPointwiseFp32(use)) continue;
      change.edit.scales.push_back(Scaled(use, 0.5));
      change.saved_ns += 0.5 * use.ns / kernels.steps;
    }
  }

  Finding finding;
  // TF32 may be a choice: 16 bits need a check of convergence.
  finding.confidence = simt ? Confidence::kStrong : Confidence::kHint;
  finding.examples = LongestKernels(m, wanted);
  if (simt) {
    finding.evidence = "Matrix products and convolutions take " +
                       OfCompute(kernels, fp32 + half) +
                       " without Tensor Cores, in " +
                       (wrong_half  ? "bfloat16, for which this device has none"
                        : only_half ? "16-bit kernels that do not use them"
                                    : "float32") +
                       ".";
  } else {
    finding.evidence = "Matrix products and convolutions take " +
                       OfCompute(kernels, tf32) +
                       " in TF32; 16-bit types run twice as fast.";
  }
  const double saved_by_others = change.saved_ns - saved_by_products;
  if (saved_by_others >= kShortNs) {
    finding.evidence +=
        " In 16 bits, products and convolutions " +
        (simt && tf32 >= kShortNs ? "(also those in TF32, which take " +
                                        Milliseconds(tf32 * 1e-6) + ") "
                                  : std::string()) +
        "save " + Milliseconds(saved_by_products * 1e-6) +
        ", and elementwise, normalising and copying kernels, which then move "
        "half the bytes, " +
        Milliseconds(saved_by_others * 1e-6) + " of " +
        Milliseconds(kernels.NsPerStep(IsPointwiseFp32) * 1e-6) + ".";
  }
  finding.evidence += MeasuredInWords(m, wanted);
  const double unknown = kernels.NsPerStep([](const KernelUse& use) {
    return use.eligible && use.tensor_cores == TensorCores::kUnknown;
  });
  if (unknown >= kShortNs) {
    finding.evidence += " Kernels that take another " +
                        Milliseconds(unknown * 1e-6) +
                        " are not counted, because their names do not show "
                        "whether they use Tensor Cores.";
  }
  const Settings* settings = LatestSettings(m.trace);
  if (settings != nullptr && settings->autocast_cuda == 1) {
    finding.evidence += " Autocast is on, but these ops run outside of it.";
  }
  const std::string peaks = PeaksInWords(kernels.peaks);
  finding.assumption = peaks.empty()
                           ? "such kernels become twice as fast (shapes were "
                             "not recorded, or the device's peaks are unknown)"
                           : "good kernels reach 60 % of the peak compute rate "
                             "and 80 % of the peak memory bandwidth; " +
                                 peaks;
  if (wrong_half) {
    finding.fix_cpp =
        "model->to(torch::kHalf), or autocast to at::kHalf; training needs a "
        "scaled loss";
    finding.fix_python =
        "model.half() (from_pretrained(..., dtype=torch.float16)), or "
        "torch.autocast(\"cuda\", dtype=torch.float16); training needs "
        "torch.amp.GradScaler";
  } else if (only_half) {
    finding.fix_cpp =
        "channels, features and sequence lengths in multiples of 8; contiguous "
        "operands";
    finding.fix_python = finding.fix_cpp;
  } else if (!HasBf16(kernels.device)) {
    finding.fix_cpp =
        "at::autocast::set_autocast_enabled(at::kCUDA, true); "
        "at::autocast::set_autocast_dtype(at::kCUDA, at::kHalf); "
        "at::autocast::clear_cache() after each step. Scale the loss, and skip "
        "steps whose gradients are infinite, as torch.amp.GradScaler does: "
        "this device has no Tensor Cores for bfloat16. Check convergence";
    finding.fix_python =
        "with torch.autocast(\"cuda\", dtype=torch.float16): ..., and "
        "torch.amp.GradScaler(\"cuda\"): this device has no Tensor Cores for "
        "bfloat16. Check convergence";
  } else {
    finding.fix_cpp =
        "at::autocast::set_autocast_enabled(at::kCUDA, true); "
        "at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16); "
        "at::autocast::clear_cache() after each step. Check convergence";
    finding.fix_python =
        "with torch.autocast(\"cuda\", dtype=torch.bfloat16): ...  (float16 "
        "needs a GradScaler). Check convergence";
  }
  finding.wrong_if = wrong_half ? "values exceed the range of float16"
                                : "the model does not converge in 16 bits";
  return FireForKernels(m, std::move(finding), std::move(change.edit),
                        change.saved_ns);
}

Verdict CheckTf32Off(const AnalysisContext& m) {
  const KernelUses& kernels = m.kernels;
  if (kernels.uses.empty()) return Clean();
  if (!DeviceKnown(kernels)) return Skip(kUnknownDevice);
  if (!HasTf32(kernels.device)) return Clean();
  const Settings* settings = LatestSettings(m.trace);
  const bool live = settings != nullptr && settings->tf32_cublas >= 0;
  if (live && settings->tf32_cublas == 1) return Clean();
  const KernelFilter wanted = [](const KernelUse& use) {
    return IsFp32Simt(use) && use.kind == KernelClass::kMatmul;
  };
  const double ns = kernels.NsPerStep(wanted);
  if (ns < kShare * kernels.compute_ns) return Clean();

  Change change = InPrecision(m, wanted, Precision::kTf32);
  Finding finding;
  finding.confidence = live ? Confidence::kProven : Confidence::kStrong;
  finding.examples = LongestKernels(m, wanted);
  finding.evidence =
      "Matrix products take " + OfCompute(kernels, ns) +
      " in float32 without Tensor Cores although the device supports TF32" +
      (live ? std::string("; the float32 matmul precision is \"") +
                  std::string(m.trace.name(settings->matmul_precision)) + "\"."
            : std::string("."));
  const std::string peaks = PeaksInWords(kernels.peaks);
  finding.assumption =
      peaks.empty() ? "products in TF32 are twice as fast (shapes were not "
                      "recorded, or the device's peaks are unknown)"
                    : "TF32 products reach the rate of good kernels; " + peaks;
  finding.fix_cpp =
      "at::globalContext().setFloat32MatmulPrecision(\"high\")  (10 bits of "
      "mantissa)";
  finding.fix_python =
      "torch.set_float32_matmul_precision(\"high\")  (10 bits of mantissa)";
  finding.wrong_if = "results need all 23 bits of float32's mantissa";
  return FireForKernels(m, std::move(finding), std::move(change.edit),
                        change.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "tensor-cores-idle",
     .question = "Do matrix products run without Tensor Cores, or in TF32 "
                 "where 16 bits would do?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kCompute},
     .check = &CheckTensorCoresIdle,
     .reference =
         "PyTorch Performance Tuning Guide: Use mixed precision and AMP",
     .detect = "products and convolutions that suit Tensor Cores take 10 % of "
               "the GPU's compute time or more without them (or in TF32)",
     .avoid = "the ops are depthwise or grouped convolutions, matrix-vector "
              "products, tiny products or float64, or the kernel names do not "
              "show whether they use Tensor Cores, or hardware counters saw "
              "them in use while these kernels ran",
     .fix_cpp = "at::autocast::set_autocast_enabled(at::kCUDA, true)",
     .fix_python = "torch.autocast(\"cuda\", dtype=torch.bfloat16)",
     .change = "autocast to 16 bits"},
    {.id = "tf32-off",
     .question = "Do float32 matrix products run without TF32?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel},
     .causes = {Cause::kCompute},
     .check = &CheckTf32Off,
     .reference = "PyTorch Performance Tuning Guide: Use Tensor Cores; "
                  "torch.set_float32_matmul_precision",
     .detect = "float32 matrix products without Tensor Cores take 10 % of the "
               "GPU's compute time or more on a device that supports TF32",
     .avoid = "the device is older than Ampere, or the ops are convolutions, "
              "which use TF32 by default",
     .fix_cpp = "at::globalContext().setFloat32MatmulPrecision(\"high\")",
     .fix_python = "torch.set_float32_matmul_precision(\"high\")",
     .change = "TF32 products"}};

}  // namespace
}  // namespace tensor_cores_rules

extern const std::span<const Rule> kTensorCores = tensor_cores_rules::kRules;

}  // namespace stepscope
