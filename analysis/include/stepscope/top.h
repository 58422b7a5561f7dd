// TopTables: what took the time, by name: operators, ranges, runtime calls,
// kernels and copies, each with calls, total and self time. What
// torch.profiler's key_averages().table() gives, from any trace.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct TopRow {
  std::string name;
  std::string shape;  // empty unless asked for
  int64_t calls = 0;
  // An operator inside another of its own row adds calls and self time to it,
  // but no total: that would count its time twice.
  int64_t total_ns = 0;
  int64_t self_ns = 0;  // without the operators inside; else as total_ns
  int64_t min_ns = 0;   // of one call
  int64_t max_ns = 0;
  int64_t device_total_ns = 0;  // operators and calls: the work they launched,
  int64_t device_self_ns = 0;   // by themselves
  int64_t bytes = 0;            // copies and memsets, as far as it is known
  double share_frac = 0;        // of the self time of the whole table
};

enum class TopOrder : uint8_t { kSelf, kTotal, kCalls, kDevice };

struct TopOptions {
  TopOrder order = TopOrder::kSelf;
  // Rows by shape too: the types and sizes of an operator's inputs, the grid
  // and block of a kernel, the bytes of a copy.
  bool by_shape = false;
  size_t limit = 20;  // rows per table; 0: all
};

struct TopTable {
  std::string name;         // "ops", "ranges", "calls", "kernels", "copies"
  bool has_device = false;  // the device columns mean something
  bool has_bytes = false;
  int64_t self_ns = 0;       // of all rows, those beyond the limit included
  size_t row_count = 0;      // likewise
  std::vector<TopRow> rows;  // the largest first
};

// Tables without rows are left out.
std::vector<TopTable> MakeTopTables(const Trace& trace,
                                    const TopOptions& options);

// Columns for a person; `width` is that of the terminal.
std::string ToText(const std::vector<TopTable>& tables, int width);
// One header, one line per row, RFC 4180; times in microseconds.
std::string ToCsv(const std::vector<TopTable>& tables);
std::string ToJson(const std::vector<TopTable>& tables);

}  // namespace stepscope
