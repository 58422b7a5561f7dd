// Contains(): a replacement for C++23's std::string_view::contains().
#pragma once

#include <string_view>

namespace stepscope {

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace stepscope
