// The rules for programs.
#pragma once

#include <string>

namespace stepscope {

// As one JSON object (docs/json.md, "rules").
std::string RulesJson();

}  // namespace stepscope
