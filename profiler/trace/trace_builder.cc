// The last stage of all decoders and readers: sorts the rows, clips them to the
// window and links them to each other.
#include <stepscope/row_times.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "name_table.h"
#include "trace_links.h"

namespace stepscope {
namespace {

// 16 TiB. Larger sizes come from damaged files, and sums of them could
// overflow.
constexpr int64_t kLargestBytes = int64_t{1} << 44;

// The golden ratio in 64 bits spreads consecutive values far apart (Knuth's
// multiplicative hashing).
size_t Mix(size_t seed, size_t value) {
  return (seed ^ value) * 0x9E3779B97F4A7C15u + (seed >> 29);
}

size_t HashOf(const Argument& argument) {
  size_t hash = Mix(argument.type, argument.concrete);
  for (int64_t dim : argument.dims) hash = Mix(hash, static_cast<size_t>(dim));
  for (int64_t stride : argument.strides)
    hash = Mix(hash, static_cast<size_t>(stride));
  for (const Argument& element : argument.elements)
    hash = Mix(hash, HashOf(element));
  return hash;
}

size_t HashOf(const OpInputs& inputs) {
  size_t hash = inputs.arguments.size();
  for (const Argument& argument : inputs.arguments)
    hash = Mix(hash, HashOf(argument));
  return hash;
}

size_t HashOf(const Stack& stack) {
  size_t hash = stack.frames.size();
  for (NameId frame : stack.frames) hash = Mix(hash, frame);
  return hash;
}

// Returns the row of `value` in `rows`, and adds it if it is new. Ops of a loop
// repeat the same shapes and stacks in every step, so each distinct value is
// stored once.
template <typename Row>
RowId InternRow(Row value, std::vector<Row>& rows,
                std::unordered_multimap<size_t, RowId>& index) {
  const size_t hash = HashOf(value);
  const auto [first, last] = index.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (rows[it->second] == value) return it->second;
  }
  const auto row = static_cast<RowId>(rows.size());
  rows.push_back(std::move(value));
  index.emplace(hash, row);
  return row;
}

template <typename Row>
RowId Push(std::vector<Row>& rows, const Row& row) {
  rows.push_back(row);
  return static_cast<RowId>(rows.size() - 1);
}

template <typename Row>
// Of two rows that begin together the longer one comes first: it is the outer
// one.
bool Before(const Row& a, const Row& b) {
  if (BeginOf(a) != BeginOf(b)) return BeginOf(a) < BeginOf(b);
  return EndOf(a) > EndOf(b);
}

// Sorts by begin, outer rows first, equal rows in the order of Add(). Rows are
// large and mostly in order, so indices are sorted, and each row moves only
// once.
template <typename Row>
void SortRows(std::vector<Row>& rows) {
  if (std::is_sorted(rows.begin(), rows.end(), Before<Row>)) return;
  std::vector<RowId> order(rows.size());
  std::iota(order.begin(), order.end(), RowId{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](RowId a, RowId b) { return Before(rows[a], rows[b]); });
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (RowId row : order) sorted.push_back(std::move(rows[row]));
  rows = std::move(sorted);
}

}  // namespace

// Finds equal rows while rows are added. The finished Trace does not need it.
struct TraceBuilder::Index {
  explicit Index(std::vector<std::string>* names) : names(names) {}
  NameTable names;
  std::map<std::pair<int64_t, int64_t>, RowId> threads;
  std::unordered_multimap<size_t, RowId> inputs;
  std::unordered_multimap<size_t, RowId> stacks;
};

TraceBuilder::TraceBuilder() : index_(new Index(&trace_.names_)) {}
TraceBuilder::~TraceBuilder() { delete index_; }

NameId TraceBuilder::Intern(std::string_view text) {
  return index_->names.Intern(text);
}

RowId TraceBuilder::ThreadRow(int64_t pid, int64_t tid) {
  const auto [it, added] = index_->threads.try_emplace(
      {pid, tid}, static_cast<RowId>(trace_.threads_.size()));
  if (added) trace_.threads_.push_back({.pid = pid, .tid = tid});
  return it->second;
}

Thread& TraceBuilder::thread(RowId row) { return trace_.threads_[row]; }

RowId TraceBuilder::InternInputs(OpInputs inputs) {
  return InternRow(std::move(inputs), trace_.op_inputs_, index_->inputs);
}

RowId TraceBuilder::InternStack(Stack stack) {
  return InternRow(std::move(stack), trace_.stacks_, index_->stacks);
}

void TraceBuilder::Reserve(size_t runtime_calls, size_t kernels,
                           size_t copies) {
  trace_.runtime_calls_.reserve(trace_.runtime_calls_.size() + runtime_calls);
  trace_.kernels_.reserve(trace_.kernels_.size() + kernels);
  trace_.copies_.reserve(trace_.copies_.size() + copies);
}

RowId TraceBuilder::Add(const Step& row) { return Push(trace_.steps_, row); }
RowId TraceBuilder::Add(const Range& row) { return Push(trace_.ranges_, row); }
RowId TraceBuilder::Add(const Op& row) { return Push(trace_.ops_, row); }
RowId TraceBuilder::Add(const RuntimeCall& row) {
  return Push(trace_.runtime_calls_, row);
}
RowId TraceBuilder::Add(const Kernel& row) {
  return Push(trace_.kernels_, row);
}
RowId TraceBuilder::Add(const Copy& row) { return Push(trace_.copies_, row); }
RowId TraceBuilder::Add(const Memset& row) {
  return Push(trace_.memsets_, row);
}
RowId TraceBuilder::Add(const Sync& row) { return Push(trace_.syncs_, row); }
RowId TraceBuilder::Add(const Overhead& row) {
  return Push(trace_.overheads_, row);
}
RowId TraceBuilder::Add(const PythonFrame& row) {
  return Push(trace_.python_frames_, row);
}
RowId TraceBuilder::Add(const Allocation& row) {
  Allocation kept = row;
  for (int64_t* bytes : {&kept.bytes, &kept.total_allocated_bytes,
                         &kept.total_reserved_bytes}) {
    *bytes = std::clamp(*bytes, -kLargestBytes, kLargestBytes);
  }
  return Push(trace_.allocations_, kept);
}
RowId TraceBuilder::Add(const Communication& row) {
  return Push(trace_.communications_, row);
}
RowId TraceBuilder::Add(const Settings& row) {
  return Push(trace_.settings_, row);
}
RowId TraceBuilder::Add(const HostUsage& row) {
  return Push(trace_.host_usage_, row);
}
RowId TraceBuilder::Add(const Loader& row) {
  return Push(trace_.loaders_, row);
}
RowId TraceBuilder::Add(const Stream& row) {
  return Push(trace_.streams_, row);
}
RowId TraceBuilder::Add(const DeviceMemory& row) {
  return Push(trace_.device_memory_, row);
}
RowId TraceBuilder::Add(const DeviceSample& row) {
  return Push(trace_.device_samples_, row);
}

void TraceBuilder::NameStream(int32_t context, int64_t id, NameId name) {
  stream_names_.push_back({.id = id, .context = context, .name = name});
}

// If a stream has several names, the last one counts.
void TraceBuilder::LinkStreamNames() {
  for (const Stream& named : stream_names_) {
    const auto row = std::find_if(
        trace_.streams_.begin(), trace_.streams_.end(), [&](const Stream& s) {
          return s.context == named.context && s.id == named.id;
        });
    if (row == trace_.streams_.end()) {
      trace_.streams_.push_back(named);
    } else {
      row->name = named.name;
    }
  }
  stream_names_.clear();
}

void TraceBuilder::Add(Loss row) {
  // Equal losses are added up, so that a report has one line for them.
  for (Loss& loss : trace_.losses_) {
    if (loss.name != row.name || loss.detail != row.detail) continue;
    loss.count = loss.count < 0 || row.count < 0 ? -1 : loss.count + row.count;
    loss.severity = std::max(loss.severity, row.severity);
    return;
  }
  trace_.losses_.push_back(std::move(row));
}

// The order matters: sort, clip, link. Links are row indices, so no row may
// move or disappear once links exist.
Trace TraceBuilder::Build(const Options& options) {
  SortRows(trace_.steps_);
  SortRows(trace_.ranges_);
  SortRows(trace_.ops_);
  SortRows(trace_.runtime_calls_);
  SortRows(trace_.kernels_);
  SortRows(trace_.copies_);
  SortRows(trace_.memsets_);
  SortRows(trace_.syncs_);
  SortRows(trace_.overheads_);
  SortRows(trace_.python_frames_);
  SortRows(trace_.allocations_);
  SortRows(trace_.communications_);
  SortRows(trace_.settings_);
  SortRows(trace_.host_usage_);
  SortRows(trace_.device_memory_);
  SortRows(trace_.device_samples_);
  LinkStreamNames();
  ForgetWrongLaunches();
  // Clipping comes before linking, because links are row indices. Device work
  // is clipped by its launch, found by correlation id.
  if (options.window_end_ns > options.window_begin_ns) Clip(options);
  LinkOps(options.nesting_tolerance_ns);
  LinkCalls();
  LinkDeviceWork();
  LinkAllocations();

  Trace built = std::move(trace_);
  trace_ = Trace();
  // After `delete`, because there may be too little memory for two indices.
  delete std::exchange(index_, nullptr);
  index_ = new Index(&trace_.names_);
  return built;
}

// CUPTI of CUDA 13.0 and 13.1 gives work of graphs the ids of other calls. Such
// a kernel would be linked to the op of that call, or clipped with the call.
// Therefore it loses its id.
void TraceBuilder::ForgetWrongLaunches() {
  const bool has_graphs =
      std::any_of(trace_.kernels_.begin(), trace_.kernels_.end(),
                  [](const Kernel& kernel) { return kernel.graph != 0; });
  if (!has_graphs) return;
  std::vector<bool> launches_graph(trace_.names_.size());
  for (size_t name = 0; name < trace_.names_.size(); ++name) {
    launches_graph[name] = LaunchesGraph(trace_.names_[name]);
  }
  const CallFinder finder(trace_.runtime_calls_);
  int64_t wrong = 0;
  for (Kernel& kernel : trace_.kernels_) {
    if (kernel.graph == 0) continue;
    const RowId call = finder.Of(kernel.correlation, kernel.begin_ns);
    if (call == kNone || launches_graph[trace_.runtime_calls_[call].name]) {
      continue;
    }
    kernel.correlation = -1;
    ++wrong;
  }
  if (wrong == 0) return;
  Add(Loss{.name = "wrong-graph-launch",
           .detail = "kernels of CUDA graphs have the correlation ID of a call "
                     "that launches no graph; they are kept, but linked to no "
                     "launch (CUPTI of CUDA 13.0 and 13.1 does this from a "
                     "process's second recording on; 13.1 Update 1 fixes it)",
           .count = wrong,
           .severity = Severity::kWarning});
}

void TraceBuilder::LinkOps(int64_t tolerance_ns) {
  LinkParents(trace_.ops_, trace_.threads_.size(), tolerance_ns);
  MarkEngineRanges(trace_.ops_, trace_.names_);
  LinkForward(trace_.ops_, trace_.threads_);
}

// Two finders, because each must be asked in time order.
void TraceBuilder::LinkCalls() {
  OpFinder calls(trace_.ops_, trace_.threads_.size());
  for (RuntimeCall& call : trace_.runtime_calls_)
    call.op = calls.At(call.thread, call.begin_ns);
  OpFinder communications(trace_.ops_, trace_.threads_.size());
  for (Communication& row : trace_.communications_)
    row.op = communications.At(row.thread, row.begin_ns);
}

void TraceBuilder::LinkDeviceWork() {
  const CallFinder finder(trace_.runtime_calls_);
  const auto link = [&](DeviceWork& work) {
    work.call = finder.Of(work.correlation, work.begin_ns);
    work.op = work.call == kNone ? kNone : trace_.runtime_calls_[work.call].op;
  };
  for (Copy& copy : trace_.copies_) link(copy);
  for (Memset& memset : trace_.memsets_) link(memset);
  for (Sync& sync : trace_.syncs_)
    sync.call = finder.Of(sync.correlation, sync.begin_ns);

  // A collective's kernel is launched by an op somewhere below the collective's
  // own op.
  std::unordered_map<RowId, RowId> communication_of;  // op -> collective
  for (RowId row = 0; row < trace_.communications_.size(); ++row) {
    if (trace_.communications_[row].op != kNone)
      communication_of[trace_.communications_[row].op] = row;
  }
  for (Kernel& kernel : trace_.kernels_) {
    link(kernel);
    for (RowId op = kernel.op; op != kNone && !communication_of.empty();
         op = trace_.ops_[op].parent) {
      const auto found = communication_of.find(op);
      if (found == communication_of.end()) continue;
      kernel.communication = found->second;
      break;
    }
  }
}

void TraceBuilder::LinkAllocations() {
  OpFinder finder(trace_.ops_, trace_.threads_.size());
  for (Allocation& event : trace_.allocations_)
    event.op = finder.At(event.thread, event.time_ns);
  LinkReleases(trace_.allocations_);
}

}  // namespace stepscope
