#include "replay/cpu/op_growth.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "ops/by_name.h"
#include "ops/op_arguments.h"

namespace stepscope {
namespace {

// Ops that move fewer bytes than this may find their data in a cache, so they
// show little about memory. Our own choice.
constexpr double kLargeBytes = 4e6;
// The best rate is the one that ops exceed for only 5 % of their time, so that
// a single outlier does not determine it.
constexpr double kBest = 0.95;
// Weights of at least this size are read from memory for each product, because
// a core's own cache has only 1 to 2 MiB.
constexpr double kBeyondCache = 1 << 20;
// Bytes per ns (GB/s) that a core streams; used if the recording has no large
// elementwise op.
constexpr double kUsualBytesPerNs = 10;
// A few cores stream at most this from memory. A faster op found its data in a
// shared cache, so its rate says nothing about new memory.
constexpr double kMostBytesPerNs = 30;
// oneDNN reorders weights into the layout of its kernel, and their gradients
// back, in memory that it allocates for each call. Touching
// new pages makes that about three times as slow as streaming.
constexpr double kFreshMemory = 3;
// How often the weights pass through memory.
constexpr double kForwardPasses = 3;   // read, write reordered, read
constexpr double kBackwardPasses = 6;  // the same, and for the gradient
constexpr double kProductPasses = 1;
// malloc returns blocks of at least 128 KiB to the system when they are freed
// (initial M_MMAP_THRESHOLD). This is that size in 32-bit numbers.
constexpr int64_t kNewElements = (128 << 10) / 4;
// How many later ops are searched for the one that takes a result.
constexpr int kSoonFollowing = 8;

double DurationNs(const Op& op) {
  return static_cast<double>(op.end_ns - op.begin_ns);
}

// Returns the best rate: `samples` are (time, rate) pairs, and rates exceed the
// returned one for only 5 % of the total time.
double BestRate(std::vector<std::pair<double, double>> samples) {
  std::ranges::sort(samples, {}, &std::pair<double, double>::second);
  double whole = 0, passed = 0;
  for (const auto& [ns, rate] : samples) whole += ns;
  for (const auto& [ns, rate] : samples) {
    passed += ns;
    if (passed >= kBest * whole) return rate;
  }
  return 0;
}

// Returns the op that has the arguments of `op`: `op` itself, or a caller of
// the same class if the arguments of `op` were not recorded, as for ops of a
// backend. kNone if there is none.
RowId TellingCall(const Trace& trace, RowId op) {
  const KernelClass kind = ClassOfOp(trace.name(trace.ops()[op].name));
  for (RowId row = op; row != kNone; row = trace.ops()[row].parent) {
    if (ClassOfOp(trace.name(trace.ops()[row].name)) != kind) break;
    if (trace.ops()[row].inputs != kNone) return row;
  }
  return kNone;
}

// Returns the number of elements of a convolution's result if its stride and
// padding were not recorded, so that the result's size cannot be computed.
// Looks for a later op of the thread whose first argument has as many samples
// as the input and as many channels as the weights. 0 if there is none.
double ResultElements(const Trace& trace, RowId call) {
  const TensorShape input = TensorArgument(trace, call, 0);
  const TensorShape weight = TensorArgument(trace, call, 1);
  if (input.dims.size() < 3 || weight.dims.size() != input.dims.size()) {
    return 0;
  }
  const Op& op = trace.ops()[call];
  int looked_at = 0;
  for (RowId row = call + 1;
       row < trace.ops().size() && looked_at < kSoonFollowing; ++row) {
    const Op& next = trace.ops()[row];
    if (next.thread != op.thread || next.begin_ns < op.end_ns) continue;
    ++looked_at;
    const TensorShape taken = TensorArgument(trace, row, 0);
    if (taken.dims.size() == input.dims.size() &&
        taken.dims[0] == input.dims[0] && taken.dims[1] == weight.dims[0]) {
      return static_cast<double>(ElementsOf(taken));
    }
  }
  return 0;
}

// Floating-point operations of `op`; 0 if unknown.
double FlopsOf(const Trace& trace, RowId op, const OpCost& cost) {
  if (cost.flops >= 0) return cost.flops;
  const RowId call = TellingCall(trace, op);
  if (cost.kind != KernelClass::kConvolution || call == kNone) return 0;
  double per_output = 2;
  const TensorShape weight = TensorArgument(trace, call, 1);
  for (size_t i = 1; i < weight.dims.size(); ++i) {
    per_output *= static_cast<double>(weight.dims[i]);
  }
  return ResultElements(trace, call) * per_output;
}

// The sizes of a matrix, the smaller one first.
using Sides = std::pair<int64_t, int64_t>;
Sides SidesOf(int64_t rows, int64_t columns) {
  return std::minmax(rows, columns);
}

// Bytes of weights that `op` moves through memory, all passes added up. Only
// matrices of the sizes in `weights` are weights.
double WeightTraffic(const Trace& trace, RowId op, const OpCost& cost,
                     const std::optional<std::set<Sides>>& weights) {
  const RowId call = TellingCall(trace, op);
  if (call == kNone) return 0;
  const auto bytes = [&](size_t i) {
    return static_cast<double>(BytesOf(trace, TensorArgument(trace, call, i)));
  };
  if (cost.kind == KernelClass::kConvolution) {
    const bool backward = trace.name(trace.ops()[call].name).find("backward") !=
                          std::string_view::npos;
    return backward ? kBackwardPasses * bytes(2) : kForwardPasses * bytes(1);
  }
  // Of the product's three matrices, the largest one whose size is in `weights`
  // is taken to be the weights. A batched product, as in attention, has none.
  if (cost.matmul.m <= 0 || cost.matmul.batch != 1) return 0;
  const MatmulShape& is = cost.matmul;
  double all = 0, largest = 0;
  for (const auto& [rows, columns] :
       {std::pair(is.m, is.k), {is.k, is.n}, {is.m, is.n}}) {
    const double size =
        static_cast<double>(rows) * static_cast<double>(columns);
    all += size;
    if (weights && !weights->contains(SidesOf(rows, columns))) continue;
    largest = std::max(largest, size);
  }
  return kProductPasses * cost.bytes * largest / std::max(all, 1.0);
}

// The matrices among the parameters that get gradients.
std::set<Sides> GradientSides(const Trace& trace) {
  std::set<Sides> sides;
  ByName traits_of(trace, &TraitsOf);
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.inputs == kNone || !traits_of(op.name).accumulate_grad) continue;
    const std::vector<int64_t> dims = TensorArgument(trace, row, 0).dims;
    if (dims.size() == 2) sides.insert(SidesOf(dims[0], dims[1]));
  }
  return sides;
}

// The sizes of matrices that may be weights: the parameters that get gradients,
// and the second arguments of linear layers, which may be frozen or a part of a
// parameter. Unknown if no matrix gets a gradient.
std::optional<std::set<Sides>> WeightSides(const Trace& trace,
                                           const std::set<Sides>& gradients) {
  if (gradients.empty()) return std::nullopt;
  std::set<Sides> sides = gradients;
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.inputs == kNone || trace.name(op.name) != "aten::linear") continue;
    const std::vector<int64_t> dims = TensorArgument(trace, row, 1).dims;
    if (dims.size() == 2) sides.insert(SidesOf(dims[0], dims[1]));
  }
  return sides;
}

// True for a product that makes the gradient of weights, if that gradient is
// its largest matrix because the product sums over the few rows of the batch.
// The gradient's memory is new in each call, because gradients are added and
// then freed. Getting its pages from the system takes most of the call, and
// that time is the same for any batch.
bool MakesGradient(const OpCost& cost, const std::set<Sides>& gradients) {
  const MatmulShape& is = cost.matmul;
  return is.batch == 1 && is.m > 0 && is.n >= kNewElements / is.m &&
         is.k < std::min(is.m, is.n) && gradients.contains(SidesOf(is.m, is.n));
}

bool HasWeights(KernelClass kind) {
  return kind == KernelClass::kConvolution || kind == KernelClass::kMatmul;
}

}  // namespace

OpGrowth::OpGrowth(const Trace& trace, const std::vector<RowId>& ops)
    : trace_(trace),
      gradients_(GradientSides(trace)),
      weights_(WeightSides(trace, gradients_)) {
  using Samples = std::vector<std::pair<double, double>>;
  std::map<NameId, Samples> arithmetic;
  Samples streaming;
  for (RowId row : ops) {
    const Op& op = trace.ops()[row];
    const double ns = DurationNs(op);
    if (ns <= 0) continue;
    const KernelClass kind = ClassOfOp(trace.name(op.name));
    if (!HasWeights(kind) && kind != KernelClass::kElementwise) continue;
    const OpCost cost = CostOf(trace, row);
    const double flops = FlopsOf(trace, row, cost);
    if (HasWeights(kind) && flops > 0) {
      arithmetic[op.name].push_back({ns, flops / ns});
    } else if (kind == KernelClass::kElementwise && cost.bytes > kLargeBytes) {
      streaming.push_back({ns, cost.bytes / ns});
    }
  }
  for (auto& [name, samples] : arithmetic) {
    const double rate = BestRate(std::move(samples));
    flops_per_ns_[name] = rate;
    if (ClassOfOp(trace.name(name)) == KernelClass::kMatmul) {
      product_rate_ = std::max(product_rate_, rate);
    }
  }
  bytes_per_ns_ = streaming.empty() ? kUsualBytesPerNs
                                    : std::min(kMostBytesPerNs,
                                               BestRate(std::move(streaming)));
}

// The parts of one op; -1 and 0 if its sizes were not recorded.
OpGrowth::Parts OpGrowth::PartsOf(RowId row) const {
  Parts parts;
  const auto best = flops_per_ns_.find(trace_.ops()[row].name);
  if (best == flops_per_ns_.end()) return parts;
  const OpCost cost = CostOf(trace_, row);
  const double flops = FlopsOf(trace_, row, cost);
  if (flops <= 0 || best->second <= 0) return parts;
  const double traffic = WeightTraffic(trace_, row, cost, weights_);
  // A product of few rows by large weights takes as long as moving the weights.
  // If a recording has only such products, their best rate does not show how
  // fast arithmetic is.
  const bool streams = cost.kind == KernelClass::kMatmul &&
                       cost.precision == Precision::kFp32 &&
                       traffic >= kBeyondCache;
  const double rate =
      streams ? std::max(best->second, kUsualFlopsPerNs) : best->second;
  parts.arithmetic_ns = flops / rate;
  parts.moving_ns = MakesGradient(cost, gradients_)
                        ? DurationNs(trace_.ops()[row])
                        : traffic * kFreshMemory / bytes_per_ns_;
  return parts;
}

double OpGrowth::ArithmeticNs(RowId row) const {
  return PartsOf(row).arithmetic_ns;
}

double OpGrowth::LeastProductNs(RowId row) const {
  const OpCost cost = CostOf(trace_, row);
  if (cost.kind != KernelClass::kMatmul) return 0;
  return std::max(0.0, FlopsOf(trace_, row, cost)) /
         std::max(product_rate_, kUsualFlopsPerNs);
}

double OpGrowth::FixedNs(RowId row) const {
  const Parts parts = PartsOf(row);
  if (parts.arithmetic_ns < 0) return 0;
  const double beyond = DurationNs(trace_.ops()[row]) - parts.arithmetic_ns;
  return std::max(0.0, std::min(beyond, parts.moving_ns));
}

}  // namespace stepscope
