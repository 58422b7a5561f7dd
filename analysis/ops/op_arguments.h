// Tensors among the recorded arguments of operators. Files have them only if
// the run was recorded with shapes (record_shapes).
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

using Dims = std::vector<int64_t>;  // the sizes of a tensor

// The sizes and element type of a tensor argument.
struct TensorShape {
  Dims dims;        // empty for a scalar tensor
  NameId type = 0;  // "float", "c10::Half"; 0: not a tensor, or unknown
  bool operator==(const TensorShape&) const = default;
  bool known() const { return type != 0; }
};

// Returns the `index`-th argument of `op`. The result is not known() if shapes
// were not recorded, there is no such argument, or it is not a tensor.
// REQUIRES: op is a row of trace.ops().
TensorShape TensorArgument(const Trace& trace, RowId op, size_t index);

// True if arguments of `op` were recorded. REQUIRES: op is a row of
// trace.ops().
bool HasArguments(const Trace& trace, RowId op);

// True if an argument of `op`, or an element of a list argument, has the type
// and sizes of `tensor`.
bool Takes(const Trace& trace, RowId op, const TensorShape& tensor);

// True if the first argument of `op` is a list of tensors recorded without
// sizes: PyTorch's profiler drops the sizes of lists of more than 30 tensors
// (TENSOR_LIST_DISPLAY_LENGTH_LIMIT, as of torch 2.11).
bool TakesCutList(const Trace& trace, RowId op);

// True if more than half of the 2-d convolutions with recorded strides have
// weights in channels-last order. False if no strides were recorded.
bool HasChannelsLastWeights(const Trace& trace);

// Returns, for example, "[512, 128]".
std::string InBrackets(const Dims& dims);

// Returns the product of the sizes; 1 for the empty sizes of a scalar.
int64_t ElementsIn(const Dims& dims);
// Returns the number of elements of `tensor`; 0 if it is not known.
int64_t ElementsOf(const TensorShape& tensor);
// Returns the size in bytes; 0 if the tensor or the size of its element type is
// not known.
int64_t BytesOf(const Trace& trace, const TensorShape& tensor);

// Returns the tensor that a copying op reads: the second argument of
// aten::copy_, the first argument of aten::to and aten::_to_copy.
TensorShape SourceOf(const Trace& trace, RowId op);

}  // namespace stepscope
