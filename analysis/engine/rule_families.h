// The families of rules, made by the build from the files in rules/:
// data_loading.cc defines kDataLoading.
#pragma once

#include <span>
#include <string_view>

#include "context/rule.h"

namespace stepscope {

std::span<const std::span<const Rule>> RuleFamilies();

// Null if there is no such rule.
const Rule* FindRule(std::string_view id);

}  // namespace stepscope
