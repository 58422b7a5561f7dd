// Arguments and results of ops. A recording has no addresses, so only sizes and
// order tell which op reads the result of another.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"

namespace stepscope {

// Returns the name without "aten::" and without the underscore of in-place ops.
std::string_view PlainNameOf(const Trace& trace, RowId op);
bool IsInPlace(const Trace& trace, RowId op);

// Returns a strong finding at the place of op `first`, on the training thread
// in a steady step. Its example spans the time from op `first` to op `last` and
// says `what` runs there ("the convolution").
Finding FindingAbout(const AnalysisContext& context, RowId first, RowId last,
                     std::string what);

// Returns the sizes of the `index`-th argument; empty if it is no tensor or
// unknown.
const Dims& DimsOf(const Trace& trace, RowId op, size_t index);
// True if an argument, or an element of a list argument, is a tensor of these
// sizes. If no arguments of `op` were recorded, those of the ops that it calls
// count.
bool TakesDims(const Trace& trace, RowId op, const Dims& dims);
// True if the first two arguments are tensors of these sizes.
bool TakesTwo(const Trace& trace, RowId op, const Dims& dims);
// TensorsOfSize(): returns how many arguments, including elements of lists, are
// tensors with this number of elements. A view has as many elements as its
// tensor. TakesElements(): true if there is one.
int64_t TensorsOfSize(const Trace& trace, RowId op, int64_t elements);
inline bool TakesElements(const Trace& trace, RowId op, int64_t elements) {
  return TensorsOfSize(trace, op, elements) > 0;
}
// Returns the number in a text like "3"; nullopt if it is no whole number.
std::optional<int64_t> NumberIn(std::string_view text);
// Returns the text of the `index`-th argument as recorded, such as "True" or
// "0.1"; "" if there is none.
std::string_view TextArgument(const Trace& trace, RowId op, size_t index);
// Returns the `index`-th argument as recorded; nullopt if it is no whole
// number.
std::optional<int64_t> NumberArgument(const Trace& trace, RowId op,
                                      size_t index);
// True if the `index`-th argument was recorded as True.
bool FlagArgument(const Trace& trace, RowId op, size_t index);
// Returns the numbers in an argument like "[0, 2]"; empty if it is no list.
std::vector<int64_t> ListArgument(const Trace& trace, RowId op, size_t index);
// Returns a dimension from an argument, which may count from the last
// dimension. Uses `otherwise` if none was recorded; nullopt if it is outside of
// `rank`.
std::optional<size_t> DimArgument(const Trace& trace, RowId op, size_t index,
                                  size_t rank,
                                  std::optional<int64_t> otherwise = {});

// The part of its first argument that aten::slice or aten::narrow takes.
struct SliceRange {
  size_t dim = 0;
  int64_t begin = 0, end = 0, step = 1;  // 0 <= begin <= end <= the size
  int64_t count() const { return (end - begin + step - 1) / step; }
};
// Returns nullopt for other ops, and without recorded sizes.
std::optional<SliceRange> SliceArguments(const Trace& trace, RowId op);

// Returns the sizes of the view that aten::slice, aten::narrow or aten::select
// makes; nullopt for other ops, and without recorded sizes.
std::optional<Dims> PartDims(const Trace& trace, RowId op);

// True for ops that compute each element from the elements at the same place.
bool IsElementwise(std::string_view plain_name);
// True for matrix products: mm, linear, matmul, bmm and the like.
bool IsProduct(std::string_view plain_name);
// Returns the index of the left factor among the arguments of a matrix product.
// The right one follows it. aten::addmm and aten::baddbmm first take the tensor
// to add.
size_t LeftFactor(std::string_view plain_name);

// Returns the index of the weight among the arguments of a layer's op (linear,
// addmm, mm, matmul, convolutions). The input is the argument before it.
// Returns 0 for other ops, and if the sizes do not fit.
size_t WeightArgument(const Trace& trace, RowId op);

// Broadcasts the sizes of all tensors of an elementwise op.
Dims BroadcastAll(const Trace& trace, RowId op);

// Returns the sizes of the result; nullopt for ops that are unknown here, and
// if the arguments do not determine them (aten::index).
std::optional<Dims> ResultDims(const Trace& trace, RowId op);

// Appends `op` and its autograd nodes, each with the share `left` of its time.
// Returns true if it has nodes.
bool AppendWithNodes(const AnalysisContext& context, RowId op, double left,
                     std::vector<ShortenedOp>& ops);

}  // namespace stepscope
