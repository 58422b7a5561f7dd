// PlainName(): an ATen op's name without its namespace and without the
// underscore of in-place ops: "mul" for "aten::mul_".
#pragma once

#include <string_view>

namespace stepscope {

inline std::string_view PlainName(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  if (name.ends_with("_")) name.remove_suffix(1);
  return name;
}

}  // namespace stepscope
