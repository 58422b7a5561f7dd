// RepairJson: repairs the known defects of other writers, so that a strict
// parser accepts the rest.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// Returns `text` with these repairs: control characters and stray backslashes
// in strings are escaped, bad UTF-8 becomes U+FFFD, NaN, Infinity and other
// bare words become null, and commas before a closing bracket are removed.
// Brackets and quotes stay.
std::string RepairJson(std::string_view text);

}  // namespace stepscope
