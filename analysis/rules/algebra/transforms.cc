// Do Fourier transforms have lengths that take long? Sources: oneMKL's
// documentation, "Fourier Transform Functions", and cuFFT's, "Accuracy and
// Performance": lengths with only small prime factors are fast; for other
// lengths both use Bluestein's algorithm, which takes two or three transforms
// of the next power of two above twice the length.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace transforms_rules {
namespace {

// oneMKL has kernels for prime factors up to 13, cuFFT for those up to 127.
constexpr int64_t kLargestOnHost = 13;
constexpr int64_t kLargestOnDevice = 127;
// Shorter transforms cost little, whatever their length. Our own choice.
constexpr int64_t kLeastLength = 128;
// Bluestein's algorithm takes at least 8 times as long as a transform of real
// numbers: two complex ones of four times the length. If twice the length is
// just above a power of two, it takes 16 times as long.
constexpr double kFastShare = 1.0 / 16;
constexpr char kChange[] = "transforms of a fast length";

int64_t LargestPrimeFactor(int64_t n) {
  int64_t largest = 1;
  for (int64_t factor = 2; factor * factor <= n; ++factor) {
    for (; n % factor == 0; n /= factor) largest = factor;
  }
  return std::max(largest, n);
}

// The next even length without other prime factors than 2, 3 and 5.
int64_t FastLength(int64_t n) {
  for (n += n % 2; LargestPrimeFactor(n) > 5;) n += 2;
  return n;
}

// Returns the lengths of the transforms that `row` makes; none without sizes.
std::vector<int64_t> LengthsOf(const Trace& trace, RowId row) {
  const Dims& dims = DimsOf(trace, row, 0);
  std::vector<int64_t> lengths;
  for (int64_t dim : ListArgument(trace, row, 1)) {
    if (dim < 0) dim += static_cast<int64_t>(dims.size());
    if (dim < 0 || dim >= static_cast<int64_t>(dims.size())) return {};
    lengths.push_back(dims[static_cast<size_t>(dim)]);
  }
  // Of a real result, only half of the spectrum is stored.
  if (PlainNameOf(trace, row) == "_fft_c2r" && !lengths.empty()) {
    lengths.back() = NumberArgument(trace, row, 3).value_or(0);
  }
  return lengths;
}

// The transforms of one length.
struct Transforms {
  std::vector<RowId> rows = {};
  int64_t ns = 0;
  // Zeros are appended before one of them, so the program chooses the length.
  bool padded = false;
};

// True if the op that calls `row`, such as torch.fft.rfft(x, n), pads first.
bool IsPadded(const AnalysisContext& m, RowId row) {
  const RowId caller = m.trace.ops()[row].parent;
  if (caller == kNone) return false;
  return std::ranges::any_of(m.tree.inside(caller), [&](RowId inner) {
    return m.trace.ops()[inner].parent == caller &&
           PlainNameOf(m.trace, inner) == "constant_pad_nd";
  });
}

// Returns the transforms of the steady steps by the length that takes long.
std::map<int64_t, Transforms> SlowTransforms(const AnalysisContext& m) {
  const int64_t largest = m.has_gpu ? kLargestOnDevice : kLargestOnHost;
  std::map<int64_t, Transforms> slow;
  for (const char* name :
       {"aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r"}) {
    for (RowId row : m.tree.named(name)) {
      const Op& op = m.trace.ops()[row];
      if ((op.thread != m.steps.thread && !m.tree.in_backward(row)) ||
          !InSteadyStep(m.steps, op.begin_ns)) {
        continue;
      }
      for (int64_t length : LengthsOf(m.trace, row)) {
        if (length < kLeastLength || LargestPrimeFactor(length) <= largest) {
          continue;
        }
        Transforms& one = slow[length];
        one.rows.push_back(row);
        one.ns += op.end_ns - op.begin_ns;
        one.padded |= IsPadded(m, row);
        break;
      }
    }
  }
  return slow;
}

Verdict CheckSlowLength(const AnalysisContext& m) {
  const std::map<int64_t, Transforms> slow = SlowTransforms(m);
  if (slow.empty()) return Clean();
  std::vector<ShortenedOp> ops;
  for (const auto& [length, one] : slow) {
    for (RowId row : one.rows) ops.push_back({row, kFastShare});
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const auto& [length, longest] = *std::ranges::max_element(
      slow, {}, [](const auto& one) { return one.second.ns; });
  const RowId row = std::ranges::min(longest.rows);
  const int64_t factor = LargestPrimeFactor(length);
  const std::string fast = std::to_string(FastLength(length));
  Finding finding = FindingAbout(m, row, row, "the transform");
  finding.evidence =
      "Fourier transforms of length " + std::to_string(length) + " (" +
      (factor == length
           ? std::string("a prime number")
           : std::to_string(length / factor) + " x " + std::to_string(factor)) +
      ") take long, because of the large prime factor. Such transforms take " +
      Milliseconds(all.ns * 1e-6) + " per step; a transform of length " + fast +
      " takes a small part of that.";
  finding.assumption =
      "at best: a transform of a fast length takes a sixteenth of the time";
  if (longest.padded) {
    finding.evidence += " Zeros are appended up to this length.";
    finding.fix_python =
        "append more zeros: torch.fft.rfft(x, n=" + fast +
        ") and the same n in irfft; scipy.fft.next_fast_len finds such "
        "lengths. The part that is used stays the same";
    finding.fix_cpp = "append more zeros: torch::fft::rfft(x, " + fast +
                      ") and the same n in irfft";
    finding.wrong_if = "the program needs the spectrum at exactly this length";
  } else {
    finding.confidence = Confidence::kHint;
    finding.fix_python =
        "crop or pad the data, or choose a frame length such "
        "as " +
        fast + ", so that the length has only small factors";
    finding.fix_cpp = finding.fix_python;
    finding.wrong_if = "the length is given, and padding changes the result";
  }
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "slow-fft-length",
     .question = "Do Fourier transforms have lengths that take long?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckSlowLength,
     .reference = "cuFFT documentation, Accuracy and Performance",
     .detect = "Fourier transforms have a length of at least 128 with a prime "
               "factor above 13 (on a GPU above 127), and take 1 % of the "
               "step. A hint, unless zeros are appended up to that length",
     .avoid = "all prime factors are small, or the transforms are short",
     .fix_cpp = "append zeros up to a length with small factors",
     .fix_python = "torch.fft.rfft(x, n=scipy.fft.next_fast_len(n)), and the "
                   "same n in irfft"}};

}  // namespace
}  // namespace transforms_rules

extern const std::span<const Rule> kTransforms = transforms_rules::kRules;

}  // namespace stepscope
