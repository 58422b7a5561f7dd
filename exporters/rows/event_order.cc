#include "rows/event_order.h"

#include <stepscope/row_times.h>

#include <algorithm>

namespace stepscope {
namespace {

// Calls `visit` with the rows of one drawn table.
template <typename Visit>
auto WithTable(const Trace& trace, Table table, Visit&& visit) {
  switch (table) {
    case Table::kStep:
      return visit(trace.steps());
    case Table::kRange:
      return visit(trace.ranges());
    case Table::kPythonFrame:
      return visit(trace.python_frames());
    case Table::kOp:
      return visit(trace.ops());
    case Table::kCommunication:
      return visit(trace.communications());
    case Table::kRuntimeCall:
      return visit(trace.runtime_calls());
    case Table::kOverhead:
      return visit(trace.overheads());
    case Table::kAllocation:
      return visit(trace.allocations());
    case Table::kDeviceMemory:
      return visit(trace.device_memory());
    case Table::kKernel:
      return visit(trace.kernels());
    case Table::kCopy:
      return visit(trace.copies());
    case Table::kMemset:
      return visit(trace.memsets());
    case Table::kSync:
    case Table::kCount:
      break;
  }
  return visit(trace.syncs());
}

}  // namespace

// Merges sorted tables. Rows come in runs of one table (a burst of kernels), so
// the next table is chosen again only when the next row of another table is
// due.
EventOrder::EventOrder(const Trace& trace) : trace_(trace) {
  for (size_t i = 0; i < static_cast<size_t>(Table::kCount); ++i) {
    Head head;
    head.table = static_cast<Table>(i);
    head.count = static_cast<RowId>(WithTable(
        trace_, head.table, [](const auto& rows) { return rows.size(); }));
    if (head.count == 0) continue;
    Load(head);
    heads_.push_back(head);
  }
}

void EventOrder::Load(Head& head) const {
  WithTable(trace_, head.table, [&](const auto& rows) {
    head.begin_ns = BeginOf(rows[head.next]);
    head.end_ns = EndOf(rows[head.next]);
  });
}

void EventOrder::Choose() {
  current_ = 0;
  for (size_t i = 1; i < heads_.size(); ++i) {
    const Head& head = heads_[i];
    const Head& best = heads_[current_];
    // If rows begin together, the longer one comes first, so that outer events
    // precede the events they enclose.
    if (head.begin_ns < best.begin_ns ||
        (head.begin_ns == best.begin_ns && head.end_ns > best.end_ns)) {
      current_ = i;
    }
  }
  others_begin_ns_ = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < heads_.size(); ++i) {
    if (i != current_)
      others_begin_ns_ = std::min(others_begin_ns_, heads_[i].begin_ns);
  }
}

bool EventOrder::Next() {
  if (heads_.empty()) return false;
  if (heads_[current_].begin_ns >= others_begin_ns_) Choose();
  Head& head = heads_[current_];
  table_ = head.table;
  begin_ns_ = head.begin_ns;
  row_ = head.next++;
  if (head.next < head.count) {
    Load(head);
    return true;
  }
  heads_.erase(heads_.begin() + static_cast<std::ptrdiff_t>(current_));
  current_ = 0;
  // Forces a new choice, because the current table has ended.
  others_begin_ns_ = std::numeric_limits<int64_t>::min();
  return true;
}

TimeSpan SpanOf(const Trace& trace) {
  int64_t begin_ns = std::numeric_limits<int64_t>::max();
  int64_t end_ns = std::numeric_limits<int64_t>::min();
  for (size_t i = 0; i < static_cast<size_t>(Table::kCount); ++i) {
    WithTable(trace, static_cast<Table>(i), [&](const auto& rows) {
      if (rows.empty()) return;
      begin_ns = std::min(begin_ns, BeginOf(rows.front()));
      for (const auto& row : rows) end_ns = std::max(end_ns, EndOf(row));
    });
  }
  const RunInfo& run = trace.run();
  if (run.window_end_ns > run.window_begin_ns) {
    begin_ns = std::min(begin_ns, run.window_begin_ns);
    end_ns = std::max(end_ns, run.window_end_ns);
  }
  if (begin_ns > end_ns) return {};
  return {begin_ns, end_ns};
}

// Each lane is a stack of open slices: a slice fits if it lies inside the
// innermost one that is still open.
size_t Lanes::Place(int64_t begin_ns, int64_t end_ns) {
  for (size_t lane = 0;; ++lane) {
    if (lane == open_ends_ns_.size()) open_ends_ns_.emplace_back();
    std::vector<int64_t>& ends_ns = open_ends_ns_[lane];
    while (!ends_ns.empty() && ends_ns.back() <= begin_ns) ends_ns.pop_back();
    if (!ends_ns.empty() && ends_ns.back() < end_ns) continue;
    ends_ns.push_back(end_ns);
    return lane;
  }
}

}  // namespace stepscope
