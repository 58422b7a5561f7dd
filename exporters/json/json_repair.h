// RepairJson: the defects that other writers are known for, mended so that a
// strict parser takes the rest.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// `text` with control characters and stray backslashes in strings escaped, bad
// UTF-8 replaced by U+FFFD, NaN, Infinity and other bare words by null, and
// commas in front of a closing bracket left out. Brackets and quotes stay.
std::string RepairJson(std::string_view text);

}  // namespace stepscope
