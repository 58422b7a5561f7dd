#include "pointer_names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace stepscope {

std::string Demangle(std::string_view mangled) {
  const std::string name(mangled);
  if (!name.starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : name;
}

}  // namespace stepscope
