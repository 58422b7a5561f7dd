#include "trace_links.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace stepscope {

// Ops are sorted so that a parent comes before its children. The parent is
// therefore the previous op of the thread or one of its callers, and the loop
// leaves each op at most once.
void LinkParents(std::span<Op> ops, size_t thread_count, int64_t tolerance_ns) {
  std::vector<RowId> innermost(thread_count, kNone);
  for (RowId row = 0; row < ops.size(); ++row) {
    Op& op = ops[row];
    if (op.thread >= thread_count) continue;
    RowId parent = innermost[op.thread];
    // Files rounded to microseconds have children that end a little after their
    // parents. Within the tolerance they still count as children.
    while (parent != kNone && (ops[parent].end_ns <= op.begin_ns ||
                               ops[parent].end_ns + tolerance_ns < op.end_ns)) {
      parent = ops[parent].parent;
    }
    op.parent = parent;
    innermost[op.thread] = row;
  }
}

// The ranges that the autograd engine opens around a node are not nodes, but
// belong to the backward pass. RecordFunction reports them without the node's
// sequence number.
void MarkEngineRanges(std::span<Op> ops, std::span<const std::string> names) {
  std::vector<bool> is_engine(names.size());
  for (size_t name = 0; name < names.size(); ++name)
    is_engine[name] = names[name].starts_with("autograd::engine::");
  for (Op& op : ops) {
    if (is_engine[op.name]) {
      op.kind = OpKind::kBackward;
      continue;
    }
    if (op.kind != OpKind::kBackward || op.sequence < 0 || op.parent == kNone) {
      continue;
    }
    Op& around = ops[op.parent];
    if (!is_engine[around.name] || around.sequence >= 0) continue;
    around.sequence = op.sequence;
    around.forward_thread = op.forward_thread;
  }
}

void LinkForward(std::span<Op> ops, std::span<const Thread> threads) {
  // Ops are sorted by begin, so a list per sequence number is in time order. An
  // op and its autograd node share a sequence number, which counts per thread.
  std::unordered_map<int64_t, std::vector<RowId>> by_sequence;
  for (RowId row = 0; row < ops.size(); ++row) {
    if (ops[row].kind == OpKind::kOperator && ops[row].sequence >= 0)
      by_sequence[ops[row].sequence].push_back(row);
  }
  for (Op& op : ops) {
    if (op.kind != OpKind::kBackward || op.sequence < 0) continue;
    const auto found = by_sequence.find(op.sequence);
    if (found == by_sequence.end()) continue;
    const std::vector<RowId>& rows = found->second;
    // Numbers repeat in every step, so take the latest forward op before the
    // node.
    auto after = std::partition_point(rows.begin(), rows.end(), [&](RowId row) {
      return ops[row].begin_ns < op.begin_ns;
    });
    while (after != rows.begin()) {
      const RowId row = *--after;
      const uint64_t id = ops[row].thread < threads.size()
                              ? threads[ops[row].thread].torch_thread
                              : 0;
      if (id == 0 || op.forward_thread == 0 || id == op.forward_thread) {
        op.forward = row;
        break;
      }
    }
  }
}

OpFinder::OpFinder(std::span<const Op> ops, size_t thread_count)
    : ops_(ops), cursors_(thread_count) {
  for (RowId row = 0; row < ops.size(); ++row) {
    if (ops[row].thread < thread_count)
      cursors_[ops[row].thread].ops.push_back(row);
  }
}

// Callers ask with rising times per thread (see the header), so each cursor
// only moves forward, and all searches together are one pass.
RowId OpFinder::At(RowId thread, int64_t time_ns) {
  if (thread >= cursors_.size()) return kNone;
  Cursor& cursor = cursors_[thread];
  while (cursor.next < cursor.ops.size() &&
         ops_[cursor.ops[cursor.next]].begin_ns <= time_ns)
    ++cursor.next;
  if (cursor.next == 0) return kNone;
  RowId op = cursor.ops[cursor.next - 1];
  while (op != kNone && ops_[op].end_ns <= time_ns) op = ops_[op].parent;
  return op;
}

// Correlation ids repeat when they wrap around or when files are merged. The
// launch is the latest call with the id that began before the activity.
CallFinder::CallFinder(std::span<const RuntimeCall> calls) {
  entries_.reserve(calls.size());
  for (RowId row = 0; row < calls.size(); ++row) {
    if (calls[row].correlation >= 0)
      entries_.push_back({calls[row].correlation, calls[row].begin_ns, row});
  }
  std::sort(entries_.begin(), entries_.end());
}

RowId CallFinder::Of(int64_t correlation, int64_t begin_ns) const {
  if (correlation < 0) return kNone;
  const auto first = std::lower_bound(entries_.begin(), entries_.end(),
                                      Entry{correlation, INT64_MIN, 0});
  if (first == entries_.end() || first->correlation != correlation)
    return kNone;
  auto after = std::upper_bound(first, entries_.end(),
                                Entry{correlation, begin_ns, kNone});
  // Device and host clocks may differ by microseconds. If all calls with this
  // id seem to begin later, the first of them is the launch.
  return after == first ? first->call : std::prev(after)->call;
}

// Links an allocation and its release to each other through `other`.
void LinkReleases(std::span<Allocation> allocations) {
  struct Place {
    int32_t device_type;
    int32_t device;
    uint64_t address;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const {
      // Blocks are aligned to at least 16 bytes, so the lowest four bits are
      // equal in all addresses.
      return (place.address >> 4) * 0x9E3779B97F4A7C15u ^
             static_cast<size_t>(place.device_type * 64 + place.device);
    }
  };
  // Addresses are reused, so a place refers to its latest allocation.
  std::unordered_map<Place, RowId, PlaceHash> live;
  live.reserve(allocations.size() / 2);
  for (RowId row = 0; row < allocations.size(); ++row) {
    Allocation& event = allocations[row];
    if (event.address == 0) continue;  // files of 2021 have no addresses
    const Place place = {event.device_type, event.device, event.address};
    if (event.bytes > 0) {
      live[place] = row;
    } else if (const auto found = live.find(place); found != live.end()) {
      event.other = found->second;
      allocations[found->second].other = row;
      live.erase(found);
    }
  }
}

}  // namespace stepscope
