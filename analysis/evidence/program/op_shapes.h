// What the arguments and results of ops look like. A recording has no
// addresses, so that which op reads what another one made follows from sizes
// and order only.
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

// The name without "aten::" and the underscore of in-place ops.
std::string_view PlainNameOf(const Trace& trace, RowId op);
bool IsInPlace(const Trace& trace, RowId op);

// A strong finding at the place of op `first`, of the training thread in a
// steady step; its example is what runs from there to op `last`: "the
// convolution".
Finding FindingAbout(const AnalysisContext& context, RowId first, RowId last,
                     std::string what);

// Sizes of the `index`-th argument; empty if it is no tensor or unknown.
const Dims& DimsOf(const Trace& trace, RowId op, size_t index);
// True if an argument, or an element of a list, is a tensor of these sizes; of
// an op without recorded arguments, those of the ops that it calls count.
bool TakesDims(const Trace& trace, RowId op, const Dims& dims);
// True if the first two arguments are tensors of these sizes.
bool TakesTwo(const Trace& trace, RowId op, const Dims& dims);
// How many arguments, and elements of lists, are tensors of so many elements,
// as a view of another one is; and whether there is one.
int64_t TensorsOfSize(const Trace& trace, RowId op, int64_t elements);
inline bool TakesElements(const Trace& trace, RowId op, int64_t elements) {
  return TensorsOfSize(trace, op, elements) > 0;
}
// "3" as a number; nullopt if it is none.
std::optional<int64_t> NumberIn(std::string_view text);
// The `index`-th argument as recorded; nullopt if it is no number.
std::optional<int64_t> NumberArgument(const Trace& trace, RowId op,
                                      size_t index);
// True if the `index`-th argument was recorded as True.
bool FlagArgument(const Trace& trace, RowId op, size_t index);
// "[0, 2]" as numbers; empty if it is no list.
std::vector<int64_t> ListArgument(const Trace& trace, RowId op, size_t index);
// A dimension that may count from the last, `otherwise` if none was recorded;
// nullopt outside of `rank`.
std::optional<size_t> DimArgument(const Trace& trace, RowId op, size_t index,
                                  size_t rank,
                                  std::optional<int64_t> otherwise = {});

// What aten::slice or aten::narrow takes of its first argument.
struct SliceRange {
  size_t dim = 0;
  int64_t begin = 0, end = 0, step = 1;  // 0 <= begin <= end <= the size
  int64_t count() const { return (end - begin + step - 1) / step; }
};
// nullopt for other ops, and without recorded sizes.
std::optional<SliceRange> SliceArguments(const Trace& trace, RowId op);

// Sizes of the view that aten::slice, aten::narrow or aten::select makes;
// nullopt for other ops, and without recorded sizes.
std::optional<Dims> PartDims(const Trace& trace, RowId op);

// True for ops that make each element from the elements at its place.
bool IsElementwise(std::string_view plain_name);
// True for matrix products: mm, linear, matmul, bmm and the like.
bool IsProduct(std::string_view plain_name);

// The place of the weight among the arguments of a layer's op (linear, addmm,
// mm, matmul, convolutions), that of the input before it; 0 for other ops, and
// where sizes do not fit.
size_t WeightArgument(const Trace& trace, RowId op);

// Sizes of the result; nullopt for ops that are not known here, and where an
// argument does not tell (aten::index).
std::optional<Dims> ResultDims(const Trace& trace, RowId op);

// Appends `op` and its autograd nodes, each with `left` of its time.
// Returns true if it has nodes.
bool AppendWithNodes(const AnalysisContext& context, RowId op, double left,
                     std::vector<ShortenedOp>& ops);

}  // namespace stepscope
