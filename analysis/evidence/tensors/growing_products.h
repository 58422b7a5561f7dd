// Finds loops that multiply the same weights with ever more rows, such as a
// generation that goes through all earlier positions for each new one.
#pragma once

#include <optional>
#include <span>

#include "context/analysis_context.h"
#include "evidence/tensors/growth.h"

namespace stepscope {

// Returns the longest such loop among `rows`, whose products get the same
// number of rows more at least kLeastGrowing times; nullopt if there is none.
// `rows` are forward ops of the training thread in time order. Growth::step is
// left 0.
std::optional<Growth> GrowingProducts(const AnalysisContext& context,
                                      std::span<const RowId> rows);

}  // namespace stepscope
