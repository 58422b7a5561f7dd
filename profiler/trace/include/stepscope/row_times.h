// BeginOf(), EndOf(): when a row of any table begins and ends; a row with one
// time does both at once.
#pragma once

#include <cstdint>

namespace stepscope {

template <typename Row>
int64_t BeginOf(const Row& row) {
  if constexpr (requires { row.time_ns; }) {
    return row.time_ns;
  } else {
    return row.begin_ns;
  }
}

template <typename Row>
int64_t EndOf(const Row& row) {
  if constexpr (requires { row.time_ns; }) {
    return row.time_ns;
  } else {
    return row.end_ns;
  }
}

}  // namespace stepscope
