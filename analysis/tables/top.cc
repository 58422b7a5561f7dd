// MakeTopTables(): what `stepscope top` prints.
#include <stepscope/top.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "ops/captured_place.h"
#include "tables/top_shapes.h"

namespace stepscope {
namespace {

// Rows by (name, shape). Keys are numbers, to avoid building a text per event.
class Rows {
 public:
  // The row of (name, shape); `text` fills in the texts of a new row.
  template <typename Text>
  TopRow& At(uint64_t name, uint64_t shape, Text text) {
    const auto [it, added] = index_.try_emplace(Key{name, shape}, rows_.size());
    if (added) {
      rows_.emplace_back();
      text(rows_.back());
    }
    return rows_[it->second];
  }
  std::vector<TopRow> Take() { return std::move(rows_); }

 private:
  struct Key {
    uint64_t name;
    uint64_t shape;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      // The factor is 2^64 / the golden ratio, which spreads small numbers over
      // all bits.
      return (key.name * 0x9E3779B97F4A7C15u) ^ (key.shape + (key.name >> 7));
    }
  };
  std::unordered_map<Key, size_t, Hash> index_;
  std::vector<TopRow> rows_;
};

void AddCall(TopRow& row, int64_t length_ns) {
  row.min_ns = row.calls == 0 ? length_ns : std::min(row.min_ns, length_ns);
  row.max_ns = std::max(row.max_ns, length_ns);
  ++row.calls;
}

// Adds a call without nested calls: its self time is its total time.
void CountWhole(TopRow& row, int64_t length_ns) {
  AddCall(row, length_ns);
  row.total_ns += length_ns;
  row.self_ns += length_ns;
}

class Maker {
 public:
  Maker(const Trace& trace, const TopOptions& options)
      : trace_(trace), options_(options), shapes_(trace, options.by_shape) {}

  std::vector<TopTable> Make() {
    LaunchedTimes();
    Add("ops", Ops(), trace_.has_device_work(), false);
    Add("ranges", Ranges(), false, false);
    Add("calls", Calls(), trace_.has_device_work(), false);
    Add("kernels", Kernels(), false, false);
    Add("copies", Copies(), false, true);
    return std::move(tables_);
  }

 private:
  void LaunchedTimes();
  std::vector<TopRow> Ops();
  void AddCaptured(Rows& rows);
  std::vector<TopRow> Ranges();
  std::vector<TopRow> Calls();
  std::vector<TopRow> Kernels();
  std::vector<TopRow> Copies();
  void SetCode(const Op& op, TopRow& row) const;
  void Add(const char* name, std::vector<TopRow> rows, bool has_device,
           bool has_bytes);
  const Trace& trace_;
  const TopOptions& options_;
  std::vector<int64_t> op_device_ns_;  // GPU time that each op launched itself
  std::vector<int64_t> call_device_ns_;  // the same for each runtime call
  TopShapes shapes_;
  std::vector<TopTable> tables_;
};

void Maker::LaunchedTimes() {
  op_device_ns_.resize(trace_.ops().size());
  call_device_ns_.resize(trace_.runtime_calls().size());
  const auto add = [&](const DeviceWork& work, bool is_of_op) {
    const int64_t length_ns = work.end_ns - work.begin_ns;
    if (is_of_op && work.op != kNone) op_device_ns_[work.op] += length_ns;
    if (work.call != kNone) call_device_ns_[work.call] += length_ns;
  };
  for (const Kernel& kernel : trace_.kernels()) {
    // A graph's kernels count for the captured operators (AddCaptured()), not
    // for the operator that replays the graph.
    add(kernel, CapturedOps(trace_, kernel).empty());
  }
  for (const Copy& copy : trace_.copies()) add(copy, true);
  for (const Memset& set : trace_.memsets()) add(set, true);
}

// Adds the kernels of CUDA graphs to the operators that were captured: GPU
// time, but no calls, because a replay of the graph runs no operator.
void Maker::AddCaptured(Rows& rows) {
  for (const Kernel& kernel : trace_.kernels()) {
    const std::span<const NameId> ops = CapturedOps(trace_, kernel);
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto outer = ops.subspan(i + 1);
      const bool is_inside_its_row =
          std::ranges::find(outer, ops[i]) != outer.end();
      // A capture has the names of operators, but no shapes.
      constexpr uint64_t kNoShape = 0;
      TopRow& row = rows.At(ops[i], kNoShape, [&](TopRow& fresh) {
        fresh.name = trace_.name(ops[i]);
      });
      const int64_t length_ns = kernel.end_ns - kernel.begin_ns;
      if (i == 0) row.device_self_ns += length_ns;
      if (!is_inside_its_row) row.device_total_ns += length_ns;
    }
  }
}

// Ops are sorted by begin, outer ones first. A backward loop therefore sees all
// children of an op before the op itself.
std::vector<TopRow> Maker::Ops() {
  const auto ops = trace_.ops();
  std::vector<int64_t> self_ns(ops.size());
  std::vector<int64_t> device_ns = op_device_ns_;
  for (size_t i = ops.size(); i-- > 0;) {
    const Op& op = ops[i];
    self_ns[i] += op.end_ns - op.begin_ns;
    if (op.parent == kNone) continue;
    const Op& parent = ops[op.parent];
    self_ns[op.parent] -= std::min(op.end_ns, parent.end_ns) - op.begin_ns;
    device_ns[op.parent] += device_ns[i];
  }
  Rows rows;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    const uint64_t shape = shapes_.Of(op);
    TopRow& row = rows.At(op.name, shape, [&](TopRow& fresh) {
      fresh.name = trace_.name(op.name);
      fresh.shape = shapes_.Text(shape);
      SetCode(op, fresh);
    });
    AddCall(row, op.end_ns - op.begin_ns);
    row.self_ns += std::max<int64_t>(self_ns[i], 0);
    row.device_self_ns += op_device_ns_[i];
    bool inside_its_row = false;
    for (RowId up = op.parent; up != kNone && !inside_its_row;
         up = ops[up].parent) {
      inside_its_row = ops[up].name == op.name && shapes_.Of(ops[up]) == shape;
    }
    // The outer op of the same row already counts this time.
    if (inside_its_row) continue;
    row.total_ns += op.end_ns - op.begin_ns;
    row.device_total_ns += device_ns[i];
  }
  AddCaptured(rows);
  return rows.Take();
}

// Ranges of one thread may overlap without nesting. Only the overlap is
// subtracted from the outer range.
std::vector<TopRow> Maker::Ranges() {
  const auto ranges = trace_.ranges();
  std::vector<int64_t> self_ns(ranges.size());
  std::unordered_map<RowId, std::vector<RowId>> open;  // by thread
  for (RowId i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    self_ns[i] = range.end_ns - range.begin_ns;
    std::vector<RowId>& around = open[range.thread];
    // Ranges are sorted by their start, so a range that has ended by now
    // encloses none of the later ones.
    while (!around.empty() && ranges[around.back()].end_ns <= range.begin_ns)
      around.pop_back();
    if (!around.empty()) {
      self_ns[around.back()] -=
          std::min(range.end_ns, ranges[around.back()].end_ns) - range.begin_ns;
    }
    around.push_back(i);
  }
  Rows rows;
  for (RowId i = 0; i < ranges.size(); ++i) {
    const int64_t length_ns = ranges[i].end_ns - ranges[i].begin_ns;
    TopRow& row = rows.At(ranges[i].name, 0, [&](TopRow& fresh) {
      fresh.name = trace_.name(ranges[i].name);
    });
    AddCall(row, length_ns);
    row.total_ns += length_ns;
    // If several ranges overlap, more may have been subtracted than there was.
    row.self_ns += std::max<int64_t>(self_ns[i], 0);
  }
  return rows.Take();
}

std::vector<TopRow> Maker::Calls() {
  Rows rows;
  for (size_t i = 0; i < trace_.runtime_calls().size(); ++i) {
    const RuntimeCall& call = trace_.runtime_calls()[i];
    TopRow& row = rows.At(call.name, 0, [&](TopRow& fresh) {
      fresh.name = trace_.name(call.name);
    });
    CountWhole(row, call.end_ns - call.begin_ns);
    row.device_self_ns += call_device_ns_[i];
    row.device_total_ns += call_device_ns_[i];
  }
  return rows.Take();
}

std::vector<TopRow> Maker::Kernels() {
  Rows rows;
  for (const Kernel& kernel : trace_.kernels()) {
    const uint64_t shape = shapes_.Of(kernel);
    CountWhole(rows.At(kernel.name, shape,
                       [&](TopRow& fresh) {
                         fresh.name = trace_.name(kernel.name);
                         fresh.shape = shapes_.Text(shape);
                         if (kernel.op == kNone) return;
                         const Op& op = trace_.ops()[kernel.op];
                         // Only for the op of the same name: the op of a
                         // compiled region launches other kernels as well.
                         if (op.name == kernel.name) SetCode(op, fresh);
                       }),
               kernel.end_ns - kernel.begin_ns);
  }
  return rows.Take();
}

std::vector<TopRow> Maker::Copies() {
  Rows rows;
  const auto add = [&](const auto& work, uint64_t kinds, auto name) {
    const uint64_t shape = shapes_.OfBytes(work.bytes);
    TopRow& row = rows.At(kinds, shape, [&](TopRow& fresh) {
      fresh.name = name();
      fresh.shape = shapes_.Text(shape);
    });
    CountWhole(row, work.end_ns - work.begin_ns);
    row.bytes += std::max<int64_t>(work.bytes, 0);
  };
  for (const Copy& copy : trace_.copies()) {
    // 1 + ... leaves 0 for memsets; 16 exceeds the number of memory kinds.
    add(copy,
        1 + static_cast<uint64_t>(copy.source) * 16 +
            static_cast<uint64_t>(copy.destination),
        [&] { return CopyName(copy); });
  }
  for (const Memset& set : trace_.memsets())
    add(set, 0, [] { return std::string("memset"); });
  return rows.Take();
}

void Maker::SetCode(const Op& op, TopRow& row) const {
  if (op.code == kNone) return;
  // Readers store the two texts as frames of a stack: first the file, then the
  // parameters.
  const std::vector<NameId>& code = trace_.stacks()[op.code].frames;
  row.code_file = trace_.name(code[0]);
  row.code_parameters = trace_.name(code[1]);
}

void Maker::Add(const char* name, std::vector<TopRow> rows, bool has_device,
                bool has_bytes) {
  if (rows.empty()) return;
  TopTable table = {.name = name,
                    .order = options_.order,
                    .has_device = has_device,
                    .has_bytes = has_bytes,
                    .row_count = rows.size(),
                    .rows = {}};
  // Sums all rows, before the limit, because shares refer to the whole table.
  for (const TopRow& row : rows) table.self_ns += row.self_ns;
  for (TopRow& row : rows) {
    row.share_frac = table.self_ns == 0
                         ? 0
                         : static_cast<double>(row.self_ns) /
                               static_cast<double>(table.self_ns);
  }
  const auto weight = [&](const TopRow& row) {
    switch (options_.order) {
      case TopOrder::kTotal:
        return row.total_ns;
      case TopOrder::kCalls:
        return row.calls;
      case TopOrder::kDevice:
        // A table without device times is sorted by host time instead.
        return has_device ? row.device_self_ns : row.self_ns;
      case TopOrder::kSelf:
        break;
    }
    return row.self_ns;
  };
  // Stable, so that ties keep the order of the trace and outputs can be
  // compared.
  std::stable_sort(
      rows.begin(), rows.end(),
      [&](const TopRow& a, const TopRow& b) { return weight(a) > weight(b); });
  if (options_.limit != 0 && rows.size() > options_.limit)
    rows.resize(options_.limit);
  table.rows = std::move(rows);
  tables_.push_back(std::move(table));
}

}  // namespace

std::vector<TopTable> MakeTopTables(const Trace& trace,
                                    const TopOptions& options) {
  return Maker(trace, options).Make();
}

}  // namespace stepscope
