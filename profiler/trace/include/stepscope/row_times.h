// BeginOf(), EndOf(): when a row of any table begins and ends, in nanoseconds
// since the epoch. For rows with a single time, both return that time.
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
