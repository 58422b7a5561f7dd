#include "rows/field_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <system_error>
#include <utility>

namespace stepscope {

// Ignores case, because Kineto writes "Pageable" and we write "pageable".
MemoryKind MemoryKindOf(std::string_view word) {
  constexpr std::pair<std::string_view, MemoryKind> kKinds[] = {
      {"pageable", MemoryKind::kPageable}, {"pinned", MemoryKind::kPinned},
      {"device", MemoryKind::kDevice},     {"array", MemoryKind::kArray},
      {"managed", MemoryKind::kManaged},   {"shared", MemoryKind::kManaged},
      {"host", MemoryKind::kHost}};
  for (const auto& [text, kind] : kKinds) {
    if (std::ranges::equal(word.substr(0, text.size()), text, {}, [](char c) {
          return std::tolower(static_cast<unsigned char>(c));
        })) {
      return kind;
    }
  }
  return MemoryKind::kUnknown;
}

// Skips all that is not a digit: Kineto writes "[1, 2, 3]", XSpaces have
// "1,2,3".
std::array<int32_t, 3> ReadThree(std::string_view list) {
  std::array<int32_t, 3> numbers = {0, 0, 0};
  const char* at = list.data();
  const char* const end = at + list.size();
  for (int32_t& number : numbers) {
    while (at < end && (*at < '0' || *at > '9')) ++at;
    const auto result = std::from_chars(at, end, number);
    if (result.ec != std::errc()) break;
    at = result.ptr;
  }
  return numbers;
}

}  // namespace stepscope
