// Tensors among the arguments of recorded ops.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace stepscope {

// A tensor as an op saw it.
struct TensorShape {
  std::vector<int64_t> dims;
  NameId type = 0;  // "float"; empty if it is no tensor
  bool operator==(const TensorShape&) const = default;
  bool known() const { return type != 0; }
};

// The `index`-th argument of `op`; not known if shapes were not recorded or it
// is no tensor. REQUIRES: op is a row of trace.ops().
TensorShape TensorArgument(const Trace& trace, RowId op, size_t index);

// True if any argument of `op`, or of a list among them, is such a tensor.
bool Takes(const Trace& trace, RowId op, const TensorShape& tensor);

// True if most convolutions whose strides were recorded have weights
// in channels-last order.
bool HasChannelsLastWeights(const Trace& trace);

int64_t ElementsOf(const TensorShape& tensor);
// 0 if the type's size is not known.
int64_t BytesOf(const Trace& trace, const TensorShape& tensor);

// Where a copy, alone or inside an op, takes its tensor from: the source of
// aten::copy_, the input of aten::to and aten::_to_copy.
TensorShape SourceOf(const Trace& trace, RowId op);

}  // namespace stepscope
