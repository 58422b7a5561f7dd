// Contains(), and IsAnyOf(): true if a name is one of several.
#pragma once

#include <stepscope/contains.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace stepscope {

inline bool IsAnyOf(std::string_view name,
                    std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace stepscope
