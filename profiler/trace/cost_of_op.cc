#include <stepscope/contains.h>
#include <stepscope/op_cost.h>

#include <algorithm>

#include "convolution_cost.h"
#include "op_arguments.h"

namespace stepscope {
namespace {

// Fewer operations than this cannot fill the Tensor Cores of any device. The
// smallest Tensor Core tile, 16x16x16, is 8,192 operations, and a device has
// hundreds of units to fill.
constexpr double kTinyFlops = 1e6;
// A product this narrow is a matrix times a vector.
constexpr int64_t kVector = 4;

OpCost Product(const Arguments& args, size_t a, size_t b) {
  OpCost cost;
  cost.precision = PrecisionOfType(args.Type(a));
  const std::vector<int64_t>& left = args.Dims(a);
  const std::vector<int64_t>& right = args.Dims(b);
  if (left.empty() || right.size() < 2) return cost;
  MatmulShape shape;
  shape.k = left.back();
  shape.n = right.back();
  shape.m = left.size() >= 2 ? left[left.size() - 2] : 1;
  for (size_t i = 0; i + 2 < left.size(); ++i) shape.batch *= left[i];
  // [m, k] by [k, n]. A transposed operand is contiguous along its other
  // dimension.
  const bool left_turned = args.IsTransposed(a);
  const bool right_turned = args.IsTransposed(b);
  shape.m_inner = left_turned;
  shape.k_inner = !left_turned || right_turned;
  shape.n_inner = true;  // of the result
  cost.matmul = shape;
  cost.flops = shape.flops();
  const double result = static_cast<double>(shape.batch) *
                        static_cast<double>(shape.m) *
                        static_cast<double>(shape.n);
  cost.bytes = args.Bytes(a) + args.Bytes(b) +
               result * static_cast<double>(ElementBytes(args.Type(a)));
  return cost;
}

// linear(input [..., k], weight [n, k], bias).
OpCost Linear(const Arguments& args) {
  OpCost cost;
  cost.precision = PrecisionOfType(args.Type(0));
  const std::vector<int64_t>& input = args.Dims(0);
  const std::vector<int64_t>& weight = args.Dims(1);
  if (input.empty() || weight.size() != 2 || input.back() == 0) return cost;
  cost.matmul.k = input.back();
  cost.matmul.n = weight[0];
  cost.matmul.m = static_cast<int64_t>(Elements(input)) / input.back();
  cost.flops = cost.matmul.flops();
  cost.bytes = args.Bytes(0) + args.Bytes(1) +
               static_cast<double>(cost.matmul.m * cost.matmul.n *
                                   ElementBytes(args.Type(0)));
  return cost;
}

OpCost Attention(std::string_view op, const Arguments& args) {
  OpCost cost;
  const bool backward = Contains(op, "backward");
  const size_t q = backward ? 1 : 0;
  const std::vector<int64_t>& query = args.Dims(q);
  const std::vector<int64_t>& key = args.Dims(q + 1);
  cost.precision = PrecisionOfType(args.Type(q));
  if (query.size() != 4 || key.size() != 4) return cost;
  // These operators pass [batch, length, heads, width].
  const bool length_first = op.starts_with("aten::_flash_attention") ||
                            op.starts_with("aten::_efficient_attention");
  const double keys = static_cast<double>(key[length_first ? 1 : 2]);
  const double products = backward ? 5 : 2;
  // Q K' and the product with V: two products of [queries x width] by keys.
  // Backward computes five: the scores again, and the gradients of scores, Q, K
  // and V.
  cost.flops = products * 2 * Elements(query) * keys;
  size_t causal = kNoArgument;
  if (op == "aten::_scaled_dot_product_flash_attention") causal = 4;
  if (op == "aten::scaled_dot_product_attention") causal = 5;
  if (op == "aten::_scaled_dot_product_efficient_attention" ||
      op == "aten::_scaled_dot_product_cudnn_attention") {
    causal = 6;
  }
  // A causal mask halves the number of scores.
  if (args.Text(causal) == "True") cost.flops /= 2;
  // Attention in one kernel never writes the scores, so only Q, K, V and the
  // result move (backward: their gradients as well).
  cost.bytes = (backward ? 2 : 1) *
               (2 * args.Bytes(q) + args.Bytes(q + 1) + args.Bytes(q + 2));
  return cost;
}

// The cost of torch.cat and torch.stack, which read and write every tensor of a
// list. torch.profiler does not record the types of the tensors in a list.
OpCost Joining(const Arguments& args) {
  OpCost cost;
  double elements = 0;
  for (const Argument& one : args.Listed(0)) elements += Elements(one.dims);
  if (elements == 0) return cost;
  cost.elements = elements;
  cost.flops = 0;
  return cost;
}

// The cost of an op that reads every tensor once and writes a result as large
// as the largest one. Such ops compute little per byte, so memory traffic
// determines their time.
OpCost Streaming(KernelClass kind, const Arguments& args) {
  OpCost cost;
  double elements = 0, result = 0, bytes = 0;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args.Dims(i).empty()) continue;
    bytes += args.Bytes(i);
    elements = std::max(elements, Elements(args.Dims(i)));
    result = std::max(result, args.Bytes(i));
    if (cost.precision == Precision::kUnknown) {
      cost.precision = PrecisionOfType(args.Type(i));
    }
  }
  if (elements == 0) return cost;
  cost.elements = elements;
  cost.flops = kind == KernelClass::kCopy ? 0 : elements;
  cost.bytes = bytes + (kind == KernelClass::kReduction ? 0 : result);
  return cost;
}

OpCost CostOfCall(std::string_view op, KernelClass kind,
                  const Arguments& args) {
  OpCost cost;
  switch (kind) {
    case KernelClass::kMatmul:
      if (op == "aten::linear") {
        cost = Linear(args);
      } else if (op == "aten::addmm" || op == "aten::baddbmm" ||
                 op == "aten::addmm_" || op == "aten::addbmm" ||
                 op == "aten::_addmm_activation") {
        cost = Product(args, 1, 2);
      } else {
        cost = Product(args, 0, 1);
      }
      break;
    case KernelClass::kConvolution:
      cost = ConvolutionCost(op, args);
      break;
    case KernelClass::kAttention:
      cost = Attention(op, args);
      break;
    case KernelClass::kElementwise:
    case KernelClass::kReduction:
    case KernelClass::kNormalisation:
    case KernelClass::kCopy:
      cost = op == "aten::cat" || op == "aten::stack" ? Joining(args)
                                                      : Streaming(kind, args);
      break;
    default:
      break;
  }
  cost.kind = kind;
  return cost;
}

}  // namespace

// Inner ops often lack the arguments (cudnn_convolution inside convolution), so
// the cost comes from the first enclosing op of the same class that has them.
OpCost CostOf(const Trace& trace, RowId op) {
  const NameId own_name = trace.ops()[op].name;
  const KernelClass kind = ClassOfOp(trace.name(own_name));
  OpCost cost;
  cost.kind = kind;
  for (RowId row = op; row != kNone; row = trace.ops()[row].parent) {
    const Op& call = trace.ops()[row];
    const std::string_view name = trace.name(call.name);
    if (call.name != own_name && ClassOfOp(name) != kind) break;
    if (call.inputs == kNone) continue;
    const OpCost told = CostOfCall(name, kind, Arguments(trace, call.inputs));
    if (told.flops >= 0) {
      const OpCost inner = cost;
      cost = told;
      // convolution_backward computes the gradients of both operands in two
      // inner ops. Each of them costs half.
      if (row != op && told.kind == KernelClass::kConvolution &&
          (trace.name(own_name).ends_with("_input") ||
           trace.name(own_name).ends_with("_weight"))) {
        cost.flops /= 2;
        cost.bytes = -1;
      }
      if (inner.precision != Precision::kUnknown) {
        cost.precision = inner.precision;
      }
      return cost;
    }
    if (cost.precision == Precision::kUnknown) cost.precision = told.precision;
    cost.depthwise |= told.depthwise;
    cost.groups = std::max(cost.groups, told.groups);
  }
  return cost;
}

RowId MultiplyingOp(const Trace& trace, RowId op) {
  for (RowId row = op; row != kNone; row = trace.ops()[row].parent) {
    const KernelClass kind = ClassOfOp(trace.name(trace.ops()[row].name));
    if (Multiplies(kind)) return row;
  }
  return kNone;
}

bool SuitsTensorCores(const OpCost& cost) {
  if (!Multiplies(cost.kind)) return false;
  if (cost.precision == Precision::kFp64 || cost.groups > 1) return false;
  if (cost.flops >= 0 && cost.flops < kTinyFlops) return false;
  if (cost.matmul.m > 0 &&
      std::min({cost.matmul.m, cost.matmul.n, cost.matmul.k}) < kVector) {
    return false;
  }
  return true;
}

}  // namespace stepscope
