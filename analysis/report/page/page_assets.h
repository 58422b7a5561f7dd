// The script and the style sheet of a page: the files beside this one, made
// into constants by CMake.
#pragma once

#include <string_view>

namespace stepscope {

std::string_view PageScript();
std::string_view PageStyle();

// Their hashes as a Content-Security-Policy names them: "'sha256-...'".
std::string_view PageScriptHash();
std::string_view PageStyleHash();

}  // namespace stepscope
