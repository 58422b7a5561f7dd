// RepairJson: repairs the known defects of other writers, so that a strict
// parser accepts the rest.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// `text` with control characters and stray backslashes in strings escaped, bad
// UTF-8 replaced by U+FFFD, NaN, Infinity and other bare words by null, and
// commas before a closing bracket removed. Brackets and quotes stay.
std::string RepairJson(std::string_view text);

}  // namespace stepscope
