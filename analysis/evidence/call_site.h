// CallSites: where in the user's program something happened, as the chain of
// open ranges and ops, or as a source line if stacks were recorded.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

// Finds the rows of a thread that are open at some moment, among nested rows.
class Nesting {
 public:
  struct Row {
    Span span;
    RowId row = kNone;
  };
  // REQUIRES: the rows of each thread are sorted by start, outer rows before
  // inner ones. A row that overlaps its outer row's end is taken to end with
  // the outer row.
  Nesting(std::vector<std::vector<Row>> by_thread);

  // Returns the rows of `thread` that are open at `time_ns`, innermost first.
  std::vector<RowId> At(RowId thread, int64_t time_ns) const;

 private:
  std::vector<std::vector<Row>> rows_;
  std::vector<std::vector<uint32_t>> parents_;  // indices into rows_, or kNone
};

// Valid while the Trace lives. Not thread-safe: Source() builds an index when
// first called.
class CallSites {
 public:
  explicit CallSites(const Trace& trace);

  // Returns a chain such as "sparse_data_dist > aten::item >
  // aten::_local_scalar_dense": at most two ranges of the program and four ops,
  // outermost first. `op` is the innermost op, or kNone. Step numbers in
  // names are removed, so that a place has the same chain in all steps.
  std::string Chain(RowId thread, int64_t time_ns, RowId op) const;

  // Returns the program's source line that made the call, such as "train.py:31
  // in step" (source_line.h); "" if no stack was recorded.
  std::string Source(RowId thread, int64_t time_ns, RowId op) const;

  // Returns Source(), or Chain() if Source() is empty.
  std::string Place(RowId thread, int64_t time_ns, RowId op) const;

 private:
  const Trace& trace_;
  Nesting ranges_;
  // Built when Source() is first called, because a recording may have millions
  // of frames.
  mutable std::optional<Nesting> frames_;
};

}  // namespace stepscope
