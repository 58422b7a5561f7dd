// MemoryTotals: the bytes that each allocator had in use after every event.
// Files from before 2022 and some recorders have only the size of each event.
// Then the sizes are added up, starting from the smallest value that makes no
// total negative, so memory that was allocated before the window and never
// freed is missing.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <utility>

namespace stepscope {

class MemoryTotals {
 public:
  explicit MemoryTotals(const Trace& trace);

  struct Totals {
    int64_t allocated_bytes = 0;
    int64_t reserved_bytes = -1;  // -1 if unknown
    int64_t peak_bytes = 0;       // of allocated_bytes, so far
    bool counted = false;         // added up, not recorded
  };
  // Returns the totals after that row. REQUIRES: rows of allocations() come in
  // order; row 0 starts again.
  Totals After(RowId row);

 private:
  using Allocator = std::pair<int32_t, int32_t>;  // device type, device

  const Trace& trace_;
  std::map<Allocator, int64_t> begin_bytes_;
  std::map<Allocator, Totals> now_;
};

}  // namespace stepscope
