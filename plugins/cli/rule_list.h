// The texts of all rules, for other programs.
#pragma once

#include <string>

namespace stepscope {

// Returns all rules as one JSON object (docs/json.md, "rules").
std::string RulesJson();

}  // namespace stepscope
