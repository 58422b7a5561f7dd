#include "convolution_cost.h"

#include <stepscope/contains.h>

#include <algorithm>

namespace stepscope {
namespace {

// Returns the operations per element of the result or, for a transposed
// convolution, per element of its input: a multiplication and an addition for
// each weight of one output (input) channel. The channel is the first
// dimension: a weight is [out, in / groups, kernel...] and, if transposed,
// [in, out / groups, kernel...].
double WorkPerOutput(const std::vector<int64_t>& weight) {
  double work = 2;
  for (size_t i = 1; i < weight.size(); ++i) {
    work *= static_cast<double>(weight[i]);
  }
  return work;
}

// The positions of the arguments of a forward convolution.
struct ArgumentOrder {
  // As in native_functions.yaml, because recorded arguments have no names.
  size_t stride, padding, dilation, transposed, groups;
};

ArgumentOrder OrderOf(std::string_view op) {
  // Backends put padding first.
  if (Contains(op, "miopen_convolution_transpose"))
    return {5, 3, 6, kNoArgument, 7};
  if (Contains(op, "cudnn_convolution_transpose"))
    return {4, 2, 5, kNoArgument, 6};
  if (Contains(op, "miopen_")) return {4, 3, 5, kNoArgument, 6};
  if (Contains(op, "cudnn_convolution")) return {3, 2, 4, kNoArgument, 5};
  if (Contains(op, "mkldnn_convolution")) return {4, 3, 5, kNoArgument, 6};
  if (Contains(op, "_convolution") || op == "aten::convolution") {
    return {3, 4, 5, 6, 8};
  }
  if (Contains(op, "conv_transpose")) return {3, 4, 7, kNoArgument, 6};
  return {3, 4, 5, kNoArgument, 6};  // conv1d, conv2d, conv3d
}

// Depthwise: one input channel per group. Such kernels are bound by memory and
// do not use Tensor Cores.
void SetGroups(int64_t groups, const std::vector<int64_t>& weight,
               OpCost& cost) {
  cost.groups = std::max<int64_t>(1, groups);
  cost.depthwise = cost.groups > 1 && weight[1] == 1;
}

// For a convolution that is not transposed: computes the groups from the number
// of input channels.
void CountGroups(const std::vector<int64_t>& weight, int64_t channels,
                 OpCost& cost) {
  if (weight.size() < 2 || weight[1] <= 0) return;
  SetGroups(channels / weight[1], weight, cost);
}

OpCost Convolution(std::string_view op, const Arguments& args) {
  OpCost cost;
  cost.precision = PrecisionOfType(args.Type(0));
  const std::vector<int64_t>& input = args.Dims(0);
  const std::vector<int64_t>& weight = args.Dims(1);
  if (input.size() < 3 || weight.size() != input.size()) return cost;
  const ArgumentOrder at = OrderOf(op);
  // A transposed convolution is the gradient of an ordinary one: every input
  // element is multiplied with every weight of its channel.
  if (Contains(op, "_transpose") || args.Text(at.transposed) == "True") {
    SetGroups(args.Number(at.groups, 1), weight, cost);
    cost.flops = Elements(input) * WorkPerOutput(weight);
    return cost;
  }
  CountGroups(weight, input[1], cost);
  const std::vector<int64_t> stride = args.List(at.stride);
  const std::vector<int64_t> padding = args.List(at.padding);
  const std::vector<int64_t> dilation = args.List(at.dilation);
  const size_t spatial = input.size() - 2;
  const auto of = [](const std::vector<int64_t>& list, size_t i,
                     int64_t otherwise) {
    return list.empty() ? otherwise : list[std::min(i, list.size() - 1)];
  };
  if (stride.empty()) return cost;  // without it the result's size is unknown
  double result =
      static_cast<double>(input[0]) * static_cast<double>(weight[0]);
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t window = of(dilation, i, 1) * (weight[i + 2] - 1) + 1;
    const int64_t span = input[i + 2] + 2 * of(padding, i, 0) - window;
    result *= static_cast<double>(std::max<int64_t>(
        0, span / std::max<int64_t>(1, of(stride, i, 1)) + 1));
  }
  cost.flops = result * WorkPerOutput(weight);
  cost.bytes = args.Bytes(0) + args.Bytes(1) +
               result * static_cast<double>(ElementBytes(args.Type(0)));
  return cost;
}

// The gradients of input and weight each cost as much as the forward pass. The
// gradient of the result has the result's shape.
OpCost ConvolutionBackward(std::string_view op, const Arguments& args) {
  OpCost cost;
  const bool only_input = op.ends_with("_input");
  const bool only_weight = op.ends_with("_weight");
  // Order of the arguments: (input, grad_output, weight) in
  // cudnn_convolution_backward, (size, grad_output, other) in ops for one
  // gradient, and (grad_output, input, weight) in all others.
  const bool sided = only_input || only_weight;
  const bool grad_second = sided ||
                           Contains(op, "cudnn_convolution_backward") ||
                           Contains(op, "miopen_convolution_backward");
  const size_t grad = grad_second ? 1 : 0;
  const size_t input = sided ? 2 : grad_second ? 0 : 1;
  cost.precision = PrecisionOfType(args.Type(grad));
  const std::vector<int64_t>& weight =
      only_weight ? args.Dims(kNoArgument) : args.Dims(2);
  if (args.Dims(grad).size() < 3 || weight.size() < 3) return cost;
  // Only aten::convolution_backward records whether it is transposed, and the
  // number of groups.
  const bool transposed =
      op == "aten::convolution_backward" && args.Text(7) == "True";
  const double one =
      Elements(args.Dims(transposed ? input : grad)) * WorkPerOutput(weight);
  double sides = sided ? 1 : 2;
  if (op == "aten::convolution_backward" && args.size() > 10) {
    // output_mask: the input of a model's first layer needs no gradient.
    const std::string_view mask = args.Text(10);
    if (mask.starts_with("[False")) sides -= 1;
  }
  cost.flops = sides * one;
  cost.bytes = args.Bytes(grad) + sides * (args.Bytes(2) + args.Bytes(input));
  if (transposed) {
    SetGroups(args.Number(9, 1), weight, cost);
  } else if (!only_input && args.Dims(input).size() >= 3) {
    CountGroups(weight, args.Dims(input)[1], cost);
  }
  return cost;
}

}  // namespace

OpCost ConvolutionCost(std::string_view op, const Arguments& args) {
  return Contains(op, "backward") ? ConvolutionBackward(op, args)
                                  : Convolution(op, args);
}

}  // namespace stepscope
