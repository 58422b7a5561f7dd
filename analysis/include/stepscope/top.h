// TopTables: the most expensive operators, ranges, runtime calls, kernels and
// copies of a Trace by name, with calls, total and self time. The same tables
// as torch.profiler's key_averages().table(), from any trace.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// All calls of one name over the whole Trace. Times are ns.
struct TopRow {
  std::string name;
  std::string shape;  // only with TopOptions::by_shape; else empty
  // For a compiled kernel and the op that launches it, if recorded: the file
  // with the generated code, and the parameters of the first call.
  std::string code_file;
  std::string code_parameters;
  int64_t calls = 0;
  // An operator called inside another one of the same row adds to `calls` and
  // `self_ns` but not to the total, which would count its time twice.
  int64_t total_ns = 0;
  int64_t self_ns = 0;  // without nested operators or ranges
  int64_t min_ns = 0;   // the shortest call
  int64_t max_ns = 0;   // the longest call
  // GPU activities that operators and runtime calls launched. Total includes
  // those of nested operators.
  int64_t device_total_ns = 0;
  int64_t device_self_ns = 0;
  int64_t bytes = 0;      // copies and memsets; unknown sizes count 0
  double share_frac = 0;  // share of the table's self time, 0 to 1
};

enum class TopOrder : uint8_t { kSelf, kTotal, kCalls, kDevice };

struct TopOptions {
  TopOrder order = TopOrder::kSelf;
  // Separate rows for the types and sizes of an operator's inputs, the grid and
  // block of a kernel, the bytes of a copy.
  bool by_shape = false;
  size_t limit = 20;  // rows per table; 0: all
};

struct TopTable {
  std::string name;  // "ops", "ranges", "calls", "kernels", "copies"
  TopOrder order = TopOrder::kSelf;  // of the rows
  bool has_device = false;           // the device_* members are set
  bool has_bytes = false;            // `bytes` is set
  int64_t self_ns = 0;       // of all rows, including those beyond the limit
  size_t row_count = 0;      // likewise
  std::vector<TopRow> rows;  // largest first, by TopOptions::order
};

// The tables in the order ops, ranges, calls, kernels, copies; empty tables are
// left out. Never fails. Threads: any number of calls may share one const
// Trace.
std::vector<TopTable> MakeTopTables(const Trace& trace,
                                    const TopOptions& options);

// Aligned columns for a terminal of `width` columns: names are shortened, and
// columns that find no room are named at the end. With width 0, for a
// file, no column is left out.
std::string ToText(const std::vector<TopTable>& tables, int width);
// RFC 4180 with one header line; times in microseconds.
std::string ToCsv(const std::vector<TopTable>& tables);
// One JSON object (docs/json.md, `top`, version 1) with a trailing newline.
std::string ToJson(const std::vector<TopTable>& tables);

}  // namespace stepscope
