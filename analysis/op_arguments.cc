#include "op_arguments.h"

#include <stepscope/op_cost.h>

#include <algorithm>

namespace stepscope {
namespace {

TensorShape ShapeOf(const Trace& trace, const Argument& argument) {
  if (ElementBytes(trace.name(argument.type)) <= 0) return {};
  return {argument.dims, argument.type};
}

}  // namespace

TensorShape TensorArgument(const Trace& trace, RowId op, size_t index) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return {};
  const std::vector<Argument>& arguments = trace.op_inputs()[inputs].arguments;
  return index < arguments.size() ? ShapeOf(trace, arguments[index])
                                  : TensorShape();
}

bool Takes(const Trace& trace, RowId op, const TensorShape& tensor) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return false;
  const auto same = [&](const Argument& argument) {
    return argument.type == tensor.type && argument.dims == tensor.dims;
  };
  return std::ranges::any_of(
      trace.op_inputs()[inputs].arguments, [&](const Argument& argument) {
        return same(argument) || std::ranges::any_of(argument.elements, same);
      });
}

int64_t ElementsOf(const TensorShape& tensor) {
  int64_t elements = tensor.known() ? 1 : 0;
  for (int64_t size : tensor.dims) elements *= size;
  return elements;
}

int64_t BytesOf(const Trace& trace, const TensorShape& tensor) {
  return ElementsOf(tensor) * ElementBytes(trace.name(tensor.type));
}

TensorShape SourceOf(const Trace& trace, RowId op) {
  const std::string_view name = trace.name(trace.ops()[op].name);
  return TensorArgument(trace, op, name == "aten::copy_" ? 1 : 0);
}

}  // namespace stepscope
