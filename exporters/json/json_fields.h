// Reads optional keys of a simdjson object. Each function leaves `*value` as it
// was if the key is missing or has another type.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace stepscope {

namespace dom = simdjson::dom;

// Reads a whole number, a real number (truncated), a flag, or a number in text.
// Returns false if there is none.
template <typename Integer>
bool GetInteger(dom::object object, std::string_view key, Integer* value) {
  dom::element element;
  if (object[key].get(element)) return false;
  int64_t number = 0;
  double real = 0;
  bool flag = false;
  std::string_view text;
  if (!element.get(number)) {
    *value = static_cast<Integer>(number);
  } else if (!element.get(real)) {
    if (!(real > -9e18 && real < 9e18)) return false;
    *value = static_cast<Integer>(static_cast<int64_t>(real));
  } else if (!element.get(flag)) {
    *value = static_cast<Integer>(flag);
  } else if (!element.get(text)) {
    char* end = nullptr;
    const std::string copy(text);
    number = std::strtoll(copy.c_str(), &end, 10);
    if (copy.empty() || *end != '\0') return false;
    *value = static_cast<Integer>(number);
  } else {
    return false;
  }
  return true;
}

inline void GetReal(dom::object object, std::string_view key, double* value) {
  double real = 0;
  if (!object[key].get(real)) *value = real;
}

inline void GetText(dom::object object, std::string_view key,
                    std::string* value) {
  std::string_view text;
  if (!object[key].get(text)) *value = std::string(text);
}

inline void GetFlag(dom::object object, std::string_view key, bool* value) {
  int64_t number = 0;
  if (GetInteger(object, key, &number)) *value = number != 0;
}

// Calls `visit` with each object of the list under `key`.
template <typename Visit>
void ForEachObject(dom::object object, std::string_view key, Visit visit) {
  dom::array list;
  if (object[key].get(list)) return;
  for (dom::element element : list) {
    dom::object item;
    if (!element.get(item)) visit(item);
  }
}

}  // namespace stepscope
