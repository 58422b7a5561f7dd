// MergeSortedParts(): rows of several tables, each of which is sorted, in one
// order. Cheaper than sorting where one table holds most of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <vector>

namespace stepscope {

// `ends`: where each part ends. Equal rows keep their order.
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
