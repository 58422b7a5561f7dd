// The rows of a Trace in the order that viewers need: all tables merged by
// time, and the slices of each drawn row assigned to lanes in which they nest.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace stepscope {

// The tables that are drawn. Where rows of two tables begin and end together,
// the table listed first encloses the other.
enum class Table : uint8_t {
  kStep,
  kRange,
  kPythonFrame,
  kOp,
  kCommunication,
  kRuntimeCall,
  kOverhead,
  kAllocation,
  kDeviceMemory,
  kKernel,
  kCopy,
  kMemset,
  kSync,
  kCount
};

// Iterates over all drawn rows by begin, longer rows first; rows of one table
// keep their order. The Trace must outlive it.
class EventOrder {
 public:
  explicit EventOrder(const Trace& trace);

  // Moves to the next row. False at the end.
  bool Next();
  Table table() const { return table_; }
  RowId row() const { return row_; }
  int64_t begin_ns() const { return begin_ns_; }

 private:
  struct Head {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    RowId next = 0;
    RowId count = 0;
    Table table = Table::kStep;
  };
  void Load(Head& head) const;
  void Choose();

  const Trace& trace_;
  // The tables with rows left, in the order of Table.
  std::vector<Head> heads_;
  size_t current_ = 0;  // in heads_
  // The current table stays the next one while its next row begins before this.
  int64_t others_begin_ns_ = std::numeric_limits<int64_t>::min();
  Table table_ = Table::kStep;
  RowId row_ = kNone;
  int64_t begin_ns_ = 0;
};

// The earliest begin and the latest end of all drawn rows and of the window;
// both are 0 for an empty Trace.
struct TimeSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};
TimeSpan SpanOf(const Trace& trace);

// Assigns the slices of one drawn row to lanes. A slice goes to the first lane
// in which it nests, so lane 0 has most slices and the others have those that
// would cross one of them. REQUIRES: slices come by begin, longer ones first.
class Lanes {
 public:
  // Returns the lane of the slice.
  size_t Place(int64_t begin_ns, int64_t end_ns);

 private:
  std::vector<std::vector<int64_t>> open_ends_ns_;  // by lane, innermost last
};

}  // namespace stepscope
