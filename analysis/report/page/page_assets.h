// The script and the style sheet of a page: the files next to this one, which
// CMake turns into constants.
#pragma once

#include <string_view>

namespace stepscope {

std::string_view PageScript();
std::string_view PageStyle();

// Their hashes in the form of a Content-Security-Policy: "'sha256-...'".
std::string_view PageScriptHash();
std::string_view PageStyleHash();

}  // namespace stepscope
