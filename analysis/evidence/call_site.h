// Where in the user's program something happened: the chain of ranges and ops
// that were open, and the source line where stacks were recorded.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

// Finds the innermost of nested rows at a moment, per thread.
class Nesting {
 public:
  struct Row {
    Span span;
    RowId row = kNone;
  };
  // Rows in time order, outer ones first where they begin together. Rows that
  // cross are taken to end with the one they began in.
  Nesting(std::vector<std::vector<Row>> by_thread);

  // Rows of `thread` open at `time_ns`, innermost first.
  std::vector<RowId> At(RowId thread, int64_t time_ns) const;

 private:
  std::vector<std::vector<Row>> rows_;
  std::vector<std::vector<uint32_t>> parents_;  // indices into rows_; kNone
};

// Valid while the Trace lives.
class CallSites {
 public:
  explicit CallSites(const Trace& trace);

  // "sparse_data_dist > aten::item > aten::_local_scalar_dense": at most two
  // of the user's ranges and four ops, outermost first. Calls from one place in
  // different steps have one chain: numbers that count steps are left out.
  std::string Chain(RowId thread, int64_t time_ns, RowId op) const;

  // "train.py(31): step", the innermost frame outside the framework; "" where
  // no stack was recorded.
  std::string Source(RowId thread, int64_t time_ns, RowId op) const;

 private:
  const Trace& trace_;
  Nesting ranges_;
  // Made when first asked for: Python frames are many.
  mutable std::optional<Nesting> frames_;
};

}  // namespace stepscope
