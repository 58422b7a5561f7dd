// Are long filters applied tap by tap, where products of spectra need far fewer
// operations?
// Source: Cooley and Tukey 1965; the operations of a transform of real numbers
// as FFTW counts them, 2.5 n log2 n (fftw.org/speed).
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "replay/cpu/op_growth.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace filters_rules {
namespace {

// Transforms reach a tenth to a third of the arithmetic peak (Frigo and Johnson
// 2005, The Design and Implementation of FFTW3), and convolutions come close to
// the peak. So transforms must need less than a tenth of the operations.
constexpr double kLeastRatio = 10;
// The least length of the filters of a basis. Learned filter banks on raw sound
// have short filters, or other numbers of filters (wav2vec 2.0: 512 with 10
// taps; SincNet: 80 with 251).
constexpr int64_t kLeastTaps = 128;
// Rates of transforms on a core, in operations per ns, by the same source:
// usually a tenth of the rate of products, at best a third of the peak of
// AVX-512 at 3 GHz.
constexpr double kUsualTransformsPerNs = kUsualFlopsPerNs / 10;
constexpr double kBestTransformsPerNs = 64;
constexpr char kChange[] = "convolution by spectra";

// A convolution, in one step.
struct Filter {
  size_t step = 0;
  RowId row = kNone;
  double direct = 0, spectra = 0;  // operations
  bool is_basis = false;           // its filters are sines and cosines
  // The share of the time, including the backward pass, that remains with
  // transforms at a third of the arithmetic peak. 0 if the number of operations
  // decides instead.
  double left = 0;
};

// Returns the operations for transforming `count` signals of size `n`.
double Transforms(double count, double n) {
  return count * 2.5 * n * std::log2(std::max(n, 2.0));
}

// Returns the operations for transforming input and filters, multiplying them
// and summing over channels, and transforming the result back.
double SpectraOf(const Dims& input, const Dims& weight,
                 const std::vector<int64_t>& padding) {
  double n = 1;
  for (size_t i = 2; i < input.size(); ++i) {
    const int64_t pad =
        padding.empty() ? 0 : padding[std::min(i - 2, padding.size() - 1)];
    // The signal is this long. Results that wrap around fall into the part that
    // is cut off, or into the padding.
    n *= static_cast<double>(std::max(input[i] + 2 * pad, weight[i]));
  }
  const double batch = static_cast<double>(input[0]);
  const double in = static_cast<double>(input[1]);
  const double out = static_cast<double>(weight[0]);
  const double terms = static_cast<double>(weight[1]);  // channels per group
  // Multiplying two complex numbers and adding the result takes 8 operations.
  return Transforms(batch * in + out * terms + batch * out, n) +
         8 * batch * out * terms * n / 2;
}

// True if the number of filters equals the number of frequencies of a Fourier
// transform of their length, or the number of their real and imaginary parts.
bool HasBasisSizes(const Dims& weight) {
  if (weight.size() != 3 || weight[1] != 1 || weight[2] < kLeastTaps) {
    return false;
  }
  const int64_t filters = weight[0], taps = weight[2];
  return filters == taps || filters == taps + 2 || 2 * filters == taps ||
         2 * filters == taps + 2;
}

// True if the backward pass of the convolution `row` may compute gradients
// other than that of its input.
bool MayTrainWeight(const AnalysisContext& m, RowId row) {
  for (RowId node : m.backward.Of(m.trace.ops()[row])) {
    for (RowId in : m.tree.inside(node)) {
      if (m.trace.name(m.trace.ops()[in].name) ==
          "aten::convolution_backward") {
        return MakesGradient(m.trace, in, 0) != true ||
               MakesGradient(m.trace, in, 1) != false;
      }
    }
  }
  return false;
}

// Returns the operations for transforming all frames.
double FramesOf(double direct, const Dims& weight) {
  const double taps = static_cast<double>(weight[2]);
  const double frames = direct / (2 * static_cast<double>(weight[0]) * taps);
  return Transforms(frames, taps);
}

// Returns the share of its time that a depthwise convolution of long filters
// needs with transforms at best; 0 if transforms at their usual rate would not
// halve the time. On a CPU such a convolution, and most of all its backward
// pass, may run far below the peak. So its time decides, not its number of
// operations.
double LeftOfSlow(const AnalysisContext& m, RowId row, double spectra) {
  const Dims& weight = DimsOf(m.trace, row, 1);
  if (m.has_gpu || weight.size() != 3 || weight[2] < kLeastTaps ||
      weight[1] != 1) {
    return 0;
  }
  const Op& op = m.trace.ops()[row];
  auto ns = static_cast<double>(op.end_ns - op.begin_ns);
  const std::vector<RowId> nodes = m.backward.Of(op);
  for (RowId node : nodes) {
    ns += static_cast<double>(m.trace.ops()[node].end_ns -
                              m.trace.ops()[node].begin_ns);
  }
  // The gradients of the input and of the filters are convolutions, too.
  const double operations = (nodes.empty() ? 1 : 3) * spectra;
  if (ns < 2 * operations / kUsualTransformsPerNs) return 0;
  return operations / kBestTransformsPerNs / ns;
}

std::vector<Filter> FindFilters(const AnalysisContext& m) {
  std::vector<Filter> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      if (!IsAnyOf(PlainNameOf(m.trace, row),
                   {"conv1d", "conv2d", "convolution"})) {
        continue;
      }
      // For conv1d(padding="same"), the inner call has numbers.
      const Dims& input = DimsOf(m.trace, row, 0);
      const Dims& weight = DimsOf(m.trace, row, 1);
      const double direct = CostOf(m.trace, row).flops;
      if (input.size() < 3 || weight.size() != input.size() || direct <= 0) {
        continue;
      }
      const bool is_basis =  // as of a spectrogram
          HasBasisSizes(weight) && !MayTrainWeight(m, row);
      const double spectra =
          is_basis ? FramesOf(direct, weight)
                   : SpectraOf(input, weight, ListArgument(m.trace, row, 4));
      double left = 0;
      if (direct < kLeastRatio * spectra) {
        left = LeftOfSlow(m, row, spectra);
        if (left == 0) continue;
      }
      found.push_back({step.step, row, direct, spectra, is_basis, left});
    }
  }
  return found;
}

void Advise(bool planes, Finding& finding) {
  if (planes) {
    finding.fix_python =
        "y = torch.fft.irfft2(torch.fft.rfft2(x, s) * "
        "torch.fft.rfft2(k.flip(-1, "
        "-2), s), s), with s the sizes of x and k together, less one; or, "
        "where "
        "the kernel is a product of a column and a row (a Gaussian), one pass "
        "with each";
    finding.fix_cpp =
        "torch::fft::irfft2(torch::fft::rfft2(x, s) * "
        "torch::fft::rfft2(k.flip({-1, -2}), s), s); or one pass with a column "
        "and one with a row, where the kernel is their product";
    return;
  }
  finding.fix_python =
      "n = scipy.fft.next_fast_len(x.size(-1) + k.size(-1) - 1), because "
      "lengths "
      "with large prime factors are slow; y = "
      "torch.fft.irfft(torch.fft.rfft(x, "
      "n) * torch.fft.rfft(k.flip(-1), n), n), cut to the length you need; or "
      "torchaudio.functional.fftconvolve";
  finding.fix_cpp =
      "auto y = torch::fft::irfft(torch::fft::rfft(x, n) * "
      "torch::fft::rfft(k.flip({-1}), n), n), with n at least x.size(-1) + "
      "k.size(-1) - 1 and without large prime factors, cut to the length you "
      "need";
}

Verdict CheckDirectConvolution(const AnalysisContext& m) {
  const std::vector<Filter> found = FindFilters(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Filter& one : found) {
    trains |= AppendWithNodes(
        m, one.row, one.left > 0 ? one.left : one.spectra / one.direct, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Filter& largest = *std::ranges::max_element(found, {}, &Filter::direct);
  const Dims& weight = DimsOf(m.trace, largest.row, 1);
  Finding finding =
      FindingAbout(m, largest.row, largest.row, "the convolution");
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.row].name)) +
      " applies filters of " + InBrackets(weight) + " to " +
      InBrackets(DimsOf(m.trace, largest.row, 0)) + " tap by tap, with " +
      Number(largest.direct * 1e-9) + " billion operations; " +
      (largest.is_basis
           ? "the filters are as many as a Fourier transform of their length "
             "has frequencies, and are not trained, so this looks like a "
             "spectrogram, of which fast transforms need "
           : "transforms and products of spectra need ") +
      Percent(largest.spectra / largest.direct) +
      " of that. Such convolutions" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      largest.left > 0
          ? "at best: transforms reach a third of the arithmetic peak of a "
            "core with AVX-512, of which this convolution is far away"
          : "at best: transforms run at the rate of the convolution; they "
            "usually reach a tenth to a third of it";
  finding.wrong_if =
      "the result must agree with the direct one to more than some six digits "
      "(float32)";
  if (largest.is_basis) {
    finding.confidence = Confidence::kHint;
    finding.fix_python =
        "torch.stft(x, n_fft, hop, window=window, return_complex=True), or "
        "torchaudio.transforms.Spectrogram";
    finding.fix_cpp =
        "at::stft(x, n_fft, hop, n_fft, window, /*normalized=*/false, "
        "/*onesided=*/true, /*return_complex=*/true)";
    finding.wrong_if = "the filters are no sines and cosines";
  } else {
    Advise(weight.size() > 3, finding);
  }
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "direct-convolution",
     .question = "Are long filters applied tap by tap, where spectra need far "
                 "fewer operations?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckDirectConvolution,
     .reference = "PyTorch documentation, torch.fft.rfft: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.fft.rfft.html",
     .detect =
         "in two thirds of the steps, a convolution needs ten times as many "
         "operations as transforms of its input, filters and result (2.5 n "
         "log2 n each) and the products of the spectra; transforms reach a "
         "tenth to a third of the rate. Or its filters, of at least 128 taps "
         "and one channel, are as many as a Fourier transform of that length "
         "has frequencies, or twice as many, and get no gradient",
     .avoid = "the filters are short, the stride leaves few results, or many "
              "channels are summed up",
     .fix_cpp = "torch::fft::rfft, products, torch::fft::irfft",
     .fix_python = "torch.fft.rfft, products, torch.fft.irfft"}};

}  // namespace
}  // namespace filters_rules

extern const std::span<const Rule> kFilters = filters_rules::kRules;

}  // namespace stepscope
