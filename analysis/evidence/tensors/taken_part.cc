#include "evidence/tensors/taken_part.h"

#include <algorithm>
#include <string_view>

#include "evidence/program/op_shapes.h"
#include "ops/contains.h"

namespace stepscope {
namespace {

// PartTaken() for x[index]. The gradient tells how many rows it takes.
std::optional<TakenPart> RowsOf(const AnalysisContext& m, RowId row,
                                const Dims& dims) {
  const Op& op = m.trace.ops()[row];
  TakenPart part;
  if (PlainNameOf(m.trace, row) == "embedding") {
    part.dims = ResultDims(m.trace, row).value_or(Dims());
  } else {
    for (RowId node : m.backward.Of(op)) {
      // The engine's range has no arguments, but the node inside it has.
      part.dims = DimsOf(m.trace, node, 0);
      if (part.dims.empty() && node + 1 < m.trace.ops().size()) {
        part.dims = DimsOf(m.trace, node + 1, 0);
      }
    }
  }
  const size_t behind = dims.empty() ? 0 : dims.size() - 1;
  if (part.dims.size() <= behind ||
      !std::equal(dims.begin() + 1, dims.end(), part.dims.end() - behind)) {
    return {};
  }
  part.share = static_cast<double>(ElementsIn(part.dims)) /
               std::max(static_cast<double>(ElementsIn(dims)), 1.0);
  return part.share < 1 ? std::optional(part) : std::nullopt;
}

// PartTaken() for x.gather(dim, index).
std::optional<TakenPart> GatheredOf(const AnalysisContext& m, RowId row,
                                    const Dims& dims) {
  const std::optional<size_t> dim = DimArgument(m.trace, row, 1, dims.size());
  const Dims& index = DimsOf(m.trace, row, 2);
  if (!dim || index.size() != dims.size() || index[*dim] >= dims[*dim]) {
    return {};
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != *dim && index[i] != dims[i]) return {};
  }
  return TakenPart{.dim = *dim,
                   .share = static_cast<double>(index[*dim]) /
                            static_cast<double>(dims[*dim]),
                   .dims = index};
}

}  // namespace

std::optional<TakenPart> PartTaken(const AnalysisContext& m, RowId row,
                                   const Dims& dims) {
  const std::string_view name = PlainNameOf(m.trace, row);
  if (IsAnyOf(name, {"index", "embedding"})) return RowsOf(m, row, dims);
  if (name == "gather") return GatheredOf(m, row, dims);
  if (!IsAnyOf(name, {"slice", "narrow", "select", "index_select"})) {
    return {};
  }
  const std::optional<size_t> dim = DimArgument(m.trace, row, 1, dims.size());
  if (!dim || dims[*dim] <= 0) return {};
  const int64_t size = dims[*dim];
  TakenPart part{.dim = *dim, .dims = dims};
  int64_t count = 1;
  if (const auto range = SliceArguments(m.trace, row)) {
    count = range->count();
    part.at_end = range->step == 1 && (range->begin == 0 || range->end == size);
  } else if (name == "index_select") {
    count = ElementsOf(TensorArgument(m.trace, row, 2));
  } else {
    const int64_t at = NumberArgument(m.trace, row, 2).value_or(0);
    part.at_end = at == 0 || at == size - 1 || at == -1 || at == -size;
    part.dims.erase(part.dims.begin() + static_cast<int64_t>(*dim));
  }
  if (name != "select") part.dims[*dim] = count;
  if (count >= size && name != "select") return {};
  part.share = static_cast<double>(count) / static_cast<double>(size);
  return part;
}

std::optional<size_t> SqueezedDim(const Trace& trace, RowId row,
                                  const Dims& dims) {
  if (PlainNameOf(trace, row) != "squeeze") return {};
  const std::optional<size_t> dim = DimArgument(trace, row, 1, dims.size());
  return dim && dims[*dim] == 1 ? dim : std::nullopt;
}

}  // namespace stepscope
