// MergeSortedParts(): merges rows of several sorted tables into one order.
// Cheaper than sorting all rows if one table holds most of them, as kernels do
// among the device activities.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <vector>

namespace stepscope {

// Sorts `rows` by `key` (a member pointer or a callable), stably. REQUIRES:
// `rows` consists of consecutive parts, each sorted by `key`; `ends` holds the
// end index of each part, and the last end is rows.size().
template <typename Row, typename Key>
void MergeSortedParts(std::vector<Row>& rows,
                      std::initializer_list<size_t> ends, Key key) {
  const auto at = [&](size_t i) {
    return rows.begin() + static_cast<std::ptrdiff_t>(i);
  };
  const auto before = [&](const Row& a, const Row& b) {
    return std::invoke(key, a) < std::invoke(key, b);
  };
  size_t sorted = 0;
  for (size_t end : ends) {
    std::inplace_merge(rows.begin(), at(sorted), at(end), before);
    sorted = end;
  }
}

}  // namespace stepscope
