// Do the sizes of matrix products suit Tensor Cores?
// Sources: PyTorch Performance Tuning Guide, "sizes in multiples of 8";
// NVIDIA's matrix multiplication guide (16 bytes along contiguous dimensions).
// A misaligned size alone is not reported, because libraries pad the operands
// themselves (DLProf withdrew its shape rule in 20.10). The product must also
// be slow in this recording.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/attention/written_attention.h"
#include "evidence/kernel_evidence.h"
#include "words/quantities.h"

namespace stepscope {
namespace alignment_rules {
namespace {

// A misaligned product is slow below this share of the aligned products' rate.
constexpr double kSlow = 0.7;
// Products are comparable if their FLOPs differ by at most this factor, because
// larger products reach higher rates.
constexpr double kSimilar = 4;
// Predictions never make a kernel more than ten times as fast.
constexpr double kLeastFactor = 0.1;

// A contiguous dimension needs a multiple of this many elements to fill 16
// bytes.
int64_t UnitOf(Precision precision) {
  switch (precision) {
    case Precision::kFp16:
    case Precision::kBf16:
      return 8;
    case Precision::kTf32:
      return 4;
    case Precision::kFp8:
    case Precision::kInt8:
      return 16;
    default:
      return 1;
  }
}

int64_t Padded(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

// One matrix product and the kernels that computed it.
struct Product {
  RowId op = kNone;
  MatmulShape shape = {};
  Precision precision = Precision::kUnknown;
  std::vector<const KernelUse*> kernels = {};
  double ns = 0;
  double padding = 1;  // padded FLOPs / actual FLOPs; 1 if aligned
  bool aligned = true;
  bool narrow = false;        // a kernel loads one or two elements at a time
  bool in_attention = false;  // a fused kernel would compute it
  double rate() const { return shape.flops() / std::max(ns, 1.0); }
};

// Returns the products that a fused attention kernel would compute. Such a
// kernel pads by itself, so attention-by-hand reports them, not this rule.
std::unordered_set<RowId> ProductsOfAttention(const AnalysisContext& m) {
  std::unordered_set<RowId> rows;
  for (const WrittenAttention& one : FindWrittenAttention(m)) {
    rows.insert({one.scores, one.values});
    rows.insert(one.backward_products.begin(), one.backward_products.end());
  }
  return rows;
}

std::vector<Product> FindProducts(const AnalysisContext& m) {
  const std::unordered_set<RowId> attention = ProductsOfAttention(m);
  const auto in_attention = [&](RowId op) {
    for (; op != kNone; op = m.trace.ops()[op].parent) {
      if (attention.contains(op)) return true;
    }
    return false;
  };
  std::map<RowId, Product> by_op;
  for (const KernelUse& use : m.kernels.uses) {
    if (!use.eligible || use.kind != KernelClass::kMatmul || use.op == kNone ||
        UnitOf(use.precision) == 1 || use.flops < 0) {
      continue;
    }
    Product& product = by_op[use.op];
    product.op = use.op;
    product.precision = use.precision;
    product.kernels.push_back(&use);
    product.ns += use.ns;
    product.narrow |= use.narrow;
  }
  std::vector<Product> products;
  for (auto& [op, product] : by_op) {
    product.shape = CostOf(m.trace, op).matmul;
    if (product.shape.m == 0) continue;
    product.in_attention = in_attention(op);
    const int64_t unit = UnitOf(product.precision);
    bool& aligned = product.aligned;
    const auto pad = [&aligned, unit](int64_t size, bool inner) {
      if (!inner || size % unit == 0) return 1.0;
      aligned = false;
      return static_cast<double>(Padded(size, unit)) /
             static_cast<double>(size);
    };
    const MatmulShape& shape = product.shape;
    product.padding = pad(shape.m, shape.m_inner) *
                      pad(shape.n, shape.n_inner) * pad(shape.k, shape.k_inner);
    // The recording often does not show which dimensions are contiguous. A
    // kernel that loads single elements shows that a contiguous dimension does
    // not fit.
    if (product.narrow && aligned) {
      product.padding =
          pad(shape.m, true) * pad(shape.n, true) * pad(shape.k, true);
    }
    products.push_back(std::move(product));
  }
  return products;
}

// Returns the FLOPs per ns of aligned products of similar size and the same
// precision; 0 if there are none.
double AlignedRate(const std::vector<Product>& products,
                   const Product& product) {
  double flops = 0, ns = 0;
  for (const Product& other : products) {
    const double ratio = other.shape.flops() / product.shape.flops();
    if (!other.aligned || other.narrow ||
        other.precision != product.precision || ratio > kSimilar ||
        ratio < 1 / kSimilar) {
      continue;
    }
    flops += other.shape.flops();
    ns += other.ns;
  }
  return ns > 0 ? flops / ns : 0;
}

std::string Sizes(const MatmulShape& shape) {
  return "[" + std::to_string(shape.m) + ", " + std::to_string(shape.k) +
         "] x [" + std::to_string(shape.k) + ", " + std::to_string(shape.n) +
         "]";
}

Verdict CheckMisalignedDims(const AnalysisContext& m) {
  if (m.kernels.uses.empty()) return Clean();
  const std::vector<Product> products = FindProducts(m);
  const Roofline roofline(m.kernels);
  // Compute rates once per shape, because a model repeats few shapes many
  // times.
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int>, double> rates;
  Edit edit;
  double time = 0, saved = 0;
  bool compared = false;
  Finding finding;
  const Product* worst = nullptr;
  for (const Product& product : products) {
    if (product.aligned || product.in_attention) continue;
    const auto [known, added] = rates.try_emplace(
        {product.shape.batch, product.shape.m, product.shape.n, product.shape.k,
         static_cast<int>(product.precision)});
    if (added) known->second = AlignedRate(products, product);
    double aligned = known->second;
    const bool slow = aligned > 0 && product.rate() < kSlow * aligned;
    if (!slow && !product.narrow) continue;
    compared |= aligned > 0;
    if (aligned == 0) aligned = roofline.Flops(product.precision);
    if (aligned <= 0) continue;
    // Memory bandwidth limits a thin product. Padding cannot make it faster
    // than its bytes can be moved.
    double bytes = 0;
    for (const KernelUse* use : product.kernels) bytes += use->bytes;
    const double least = roofline.Ns(product.precision, 0, bytes) / product.ns;
    const double factor = std::max(
        {kLeastFactor, least, product.rate() / aligned * product.padding});
    if (factor >= 1) continue;
    time += product.ns;
    saved += (1 - factor) * product.ns;
    for (const KernelUse* use : product.kernels) {
      edit.scales.push_back(Scaled(*use, factor));
    }
    if (worst == nullptr || product.ns > worst->ns) worst = &product;
  }
  if (worst == nullptr) return Clean();
  time /= m.kernels.steps;
  saved /= m.kernels.steps;
  if (saved * 1e-6 < MinReportableGainMs(m)) return Clean();

  finding.confidence = Confidence::kStrong;
  std::unordered_set<RowId> slow;
  for (const ActivityScale& scale : edit.scales)
    slow.insert(scale.activity.row);
  finding.examples = LongestKernels(
      m, [&](const KernelUse& use) { return slow.contains(use.kernel); });
  const std::string unit = std::to_string(UnitOf(worst->precision));
  finding.evidence =
      "Matrix products whose sizes are not multiples of " + unit + " take " +
      Milliseconds(time * 1e-6) + " per step" +
      (compared ? ", at less than 70 % of the rate of aligned products."
                : ", in kernels that load one or two elements at a time.") +
      " The longest is " + Sizes(worst->shape) + ".";
  finding.where = OpWithShapes(m.trace, worst->op);
  finding.assumption =
      "padded products reach the rate of this run's aligned products, or the "
      "limit that memory bandwidth sets; " +
      PeaksInWords(m.kernels.peaks);
  finding.fix_cpp =
      "pad the number of classes, vocabulary size, channels and sequence "
      "length to multiples of " +
      unit + " (64 is best on A100 and later)";
  finding.fix_python = finding.fix_cpp;
  finding.wrong_if = "the same product is just as slow with padded sizes";
  return FireForKernels(m, std::move(finding), std::move(edit), saved);
}

constexpr Rule kRules[] = {
    {.id = "tc-misaligned-dims",
     .question = "Are matrix products slow because their sizes are not "
                 "multiples of 8?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckMisalignedDims,
     .reference = "PyTorch Performance Tuning Guide: Use mixed precision, "
                  "sizes in multiples of 8",
     .detect = "a contiguous dimension is not a multiple of 8 (16-bit types), "
               "4 (TF32) or 16 (8-bit types), and the product runs below 70 % "
               "of the rate of aligned products of similar FLOPs, or in a "
               "kernel that loads one or two elements at a time",
     .avoid = "only the batch dimension is misaligned, the products are tiny, "
              "the misaligned products are as fast as aligned ones, or a fused "
              "attention kernel would compute them (attention-by-hand)",
     .fix_cpp = "pad sizes to multiples of 8",
     .fix_python = "pad sizes to multiples of 8",
     .change = "sizes padded to multiples of 8"}};

}  // namespace
}  // namespace alignment_rules

extern const std::span<const Rule> kAlignment = alignment_rules::kRules;

}  // namespace stepscope
