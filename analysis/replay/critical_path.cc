#include "replay/critical_path.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "device/allocator_calls.h"
#include "device/gaps.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "words/program_frames.h"
#include "words/source_line.h"

namespace stepscope {
namespace {

// Limits of the report: rows of the table, and slices per step in a drawing.
constexpr size_t kMaxParts = 50;
constexpr size_t kSlicesPerStep = 500;

// The causes of a runtime call's time on the host, if it waits and if not.
Cause CauseOfWait(std::string_view call) {
  return Contains(call, "Synchronize") ? Cause::kSync : Cause::kBlockingCopy;
}
Cause CauseOfCall(std::string_view call) {
  return AllocatorCallOf(call) ? Cause::kAllocator : Cause::kDispatch;
}

// Walks back from the end of the last step to the start of the first. At each
// point the walk is either at an activity or at a host node, and it continues
// with what that had to wait for.
class Walk {
 public:
  Walk(const Trace& trace, const DeviceProgram& program)
      : trace_(trace),
        program_(program),
        cause_of_wait_(trace, &CauseOfWait),
        cause_of_call_(trace, &CauseOfCall),
        before_(program.activities.size(), kNoActivity) {
    std::vector<uint32_t> last(program.streams, kNoActivity);
    for (uint32_t i = 0; i < program.activities.size(); ++i) {
      uint32_t& previous = last[program.activities[i].stream];
      before_[i] = previous;
      previous = i;
    }
  }

  std::vector<PathPiece> Back();

 private:
  void Start();
  void PassActivity();
  void PassHost();
  void Add(int64_t begin_ns, PathPiece piece);

  const Trace& trace_;
  const DeviceProgram& program_;
  ByName<Cause> cause_of_wait_;
  ByName<Cause> cause_of_call_;
  std::vector<uint32_t> before_;  // the activity before each on its stream
  std::vector<PathPiece> pieces_;
  int64_t now_ns_ = 0;
  // The walk is at this activity, or at host_ if this is kNoActivity.
  uint32_t activity_ = kNoActivity;
  uint32_t host_ = 0;
  bool launching_ = false;  // the walk came to host_ from a launch in its call
  bool at_begin_ = false;
};

// Adds the piece from `begin_ns` to the current point of the walk.
void Walk::Add(int64_t begin_ns, PathPiece piece) {
  begin_ns = std::max(begin_ns, program_.windows.front().begin_ns);
  if (begin_ns >= now_ns_) return;
  piece.span = {begin_ns, now_ns_};
  pieces_.push_back(piece);
  now_ns_ = begin_ns;
}

// The last step ends with an activity or with the host. If it ends with
// neither, the time since the host's last node has no cause.
void Walk::Start() {
  now_ns_ = program_.windows.back().end_ns;
  for (uint32_t i = 0; i < program_.activities.size(); ++i) {
    if (program_.activities[i].span.end_ns != now_ns_) continue;
    // In a recording that counts as one step, the host may have launched the
    // last activity before the first one ran.
    if (program_.activities[i].step >= 0 || activity_ == kNoActivity) {
      activity_ = i;
    }
  }
  host_ = program_.hosts.size() - 1;
  Add(std::max(program_.hosts[host_].call_end_ns,
               activity_ == kNoActivity ? INT64_MIN : now_ns_),
      {});
}

// Continues with what let the activity begin: the activity before it on its
// stream, one on another stream, or its launch, whichever came last.
void Walk::PassActivity() {
  const DeviceNode& activity = program_.activities[activity_];
  const DeviceWork& row = ActivityOf(trace_, activity.ref);
  const Cause cause = activity.collective ? Cause::kCommunication
                      : activity.ref.table == ActivityTable::kKernel
                          ? Cause::kCompute
                          : Cause::kCopy;
  Add(activity.span.begin_ns,
      {.cause = cause, .op = row.op, .activity = activity.ref});
  const int64_t launched = program_.hosts[activity.host].gap.end_ns +
                           static_cast<int64_t>(activity.offset_ns);
  uint32_t binding = before_[activity_];
  for (uint32_t i = 0; i < activity.wait_count; ++i) {
    const uint32_t other = program_.waits[activity.first_wait + i];
    if (binding == kNoActivity ||
        program_.activities[other].span.end_ns >
            program_.activities[binding].span.end_ns) {
      binding = other;
    }
  }
  const bool queued = binding != kNoActivity &&
                      program_.activities[binding].span.end_ns > launched;
  const int64_t ready =
      queued ? program_.activities[binding].span.end_ns : launched;
  const bool late = now_ns_ - ready > kQueuedLatencyNs;
  Add(ready, {.cause = late && activity.in_graph ? Cause::kGraphOpaque
                       : late && queued          ? Cause::kDependency
                                                 : Cause::kKernelLatency,
              .op = row.op});
  if (queued) {
    activity_ = binding;
    return;
  }
  host_ = activity.host;
  activity_ = kNoActivity;
  launching_ = true;
}

// Continues with the host node before this one, or, if the node's call waited,
// with the activity that it waited for.
void Walk::PassHost() {
  const HostNode& node = program_.hosts[host_];
  if (node.call != kNone && now_ns_ > node.gap.end_ns) {
    const RuntimeCall& call = trace_.runtime_calls()[node.call];
    PathPiece piece{.cause = node.wait == NodeWait::kNothing
                                 ? cause_of_call_(call.name)
                                 : cause_of_wait_(call.name),
                    .op = call.op,
                    .call = node.call};
    // If the walk comes from a launch in this call, the call had not waited
    // yet: a call waits for an activity only after launching it.
    const int64_t waited =
        node.wait == NodeWait::kNothing || launching_
            ? INT64_MIN
            : std::min(program_.activities[node.target].span.end_ns, now_ns_);
    if (waited > node.gap.end_ns) {
      Add(waited, piece);
      activity_ = node.target;
      return;
    }
    Add(node.gap.end_ns, piece);
  }
  launching_ = false;
  Add(node.gap.begin_ns, {.cause = Cause::kHostCode});
  at_begin_ = host_ == 0;
  if (!at_begin_) --host_;
}

std::vector<PathPiece> Walk::Back() {
  pieces_.reserve(program_.hosts.size() + program_.activities.size());
  Start();
  const int64_t begin = program_.windows.front().begin_ns;
  while (now_ns_ > begin && !at_begin_) {
    activity_ == kNoActivity ? PassHost() : PassActivity();
  }
  Add(begin, {});
  std::ranges::reverse(pieces_);
  return std::move(pieces_);
}

// Splits host code on the path by what the thread did. `host` is the timeline
// of the chain.
std::vector<PathPiece> Refine(const std::vector<PathPiece>& path,
                              const std::vector<Segment>& host) {
  std::vector<PathPiece> refined;
  refined.reserve(path.size() + host.size());
  size_t next = 0;
  for (PathPiece piece : path) {
    if (piece.cause != Cause::kHostCode) {
      refined.push_back(piece);
      continue;
    }
    while (next < host.size() && host[next].end_ns <= piece.span.begin_ns) {
      ++next;
    }
    const int64_t end = piece.span.end_ns;
    for (size_t i = next; i < host.size() && host[i].begin_ns < end; ++i) {
      PathPiece part;
      part.span = {std::max(host[i].begin_ns, piece.span.begin_ns),
                   std::min(host[i].end_ns, end)};
      part.op = host[i].op;
      // On a run with a GPU, an op that "computes" on the host is launching.
      part.cause =
          host[i].cause == Cause::kCompute ? Cause::kDispatch : host[i].cause;
      if (part.span.length() > 0) refined.push_back(part);
      piece.span.begin_ns = std::max(piece.span.begin_ns, part.span.end_ns);
    }
    if (piece.span.length() > 0) refined.push_back(piece);
  }
  return refined;
}

// The name to show: of the op, the call, or the activity; 0 if there is none.
NameId NameOf(const Trace& trace, const PathPiece& piece) {
  if (piece.op != kNone) return trace.ops()[piece.op].name;
  if (piece.call != kNone) return trace.runtime_calls()[piece.call].name;
  if (piece.activity.row == kNone) return 0;
  switch (piece.activity.table) {
    case ActivityTable::kKernel:
      return trace.kernels()[piece.activity.row].name;
    case ActivityTable::kCopy:
      return trace.copies()[piece.activity.row].name;
    default:
      return trace.memsets()[piece.activity.row].name;
  }
}

// Calls add(piece, ns) for each part of the path that lies in a steady step, in
// time order.
template <typename Add>
void ForSteadyParts(const Steps& steps, const std::vector<PathPiece>& path,
                    const Add& add) {
  size_t next = 0;
  for (size_t step : steps.steady) {
    const Span& tiled = steps.windows[step].tiled;
    while (next < path.size() && path[next].span.end_ns <= tiled.begin_ns) {
      ++next;
    }
    for (size_t i = next;
         i < path.size() && path[i].span.begin_ns < tiled.end_ns; ++i) {
      add(path[i], std::min(path[i].span.end_ns, tiled.end_ns) -
                       std::max(path[i].span.begin_ns, tiled.begin_ns));
    }
  }
}

}  // namespace

std::vector<PathPiece> FindCriticalPath(const Trace& trace,
                                        const DeviceProgram& program) {
  if (program.hosts.empty() || program.windows.empty()) return {};
  return Refine(Walk(trace, program).Back(), program.host);
}

std::vector<PathPart> SumPath(const Trace& trace, const Steps& steps,
                              const std::vector<PathPiece>& path) {
  std::unordered_map<uint64_t, int64_t> sums;  // by cause and name
  ProgramFrames frames(trace);
  std::unordered_map<NameId, NameId> outermost;  // by innermost frame
  ForSteadyParts(steps, path, [&](const PathPiece& piece, int64_t ns) {
    NameId name = NameOf(trace, piece);
    if (name == 0 && piece.cause == Cause::kHostCode) {
      const ProgramFrame open = frames.At(
          steps.thread, piece.span.begin_ns + piece.span.length() / 2);
      name = open.innermost;
      if (name != 0) outermost.try_emplace(name, open.outermost);
    }
    sums[static_cast<uint64_t>(piece.cause) << 32 | name] += ns;
  });
  std::vector<PathPart> parts;
  parts.reserve(sums.size());
  for (const auto& [what, ns] : sums) {
    const auto name = static_cast<NameId>(what);
    const auto frame = outermost.find(name);
    parts.push_back(
        {.category = CauseKey(static_cast<Cause>(what >> 32)),
         .name = frame == outermost.end()
                     ? std::string(trace.name(name))
                     : SourceLine(trace, std::array{name, frame->second}),
         .ms_per_step = ns * 1e-6 / steps.steady.size()});
  }
  std::ranges::sort(parts, [](const PathPart& a, const PathPart& b) {
    return std::tie(b.ms_per_step, a.category, a.name) <
           std::tie(a.ms_per_step, b.category, b.name);
  });
  if (parts.size() > kMaxParts) parts.resize(kMaxParts);
  return parts;
}

std::map<std::string, double> SplitPath(const Steps& steps,
                                        const std::vector<PathPiece>& path) {
  std::array<std::optional<double>, kCauses> sums;
  ForSteadyParts(steps, path, [&](const PathPiece& piece, int64_t ns) {
    std::optional<double>& sum = sums[static_cast<size_t>(piece.cause)];
    sum = sum.value_or(0) + ns * 1e-6 / steps.steady.size();
  });
  std::map<std::string, double> split;
  for (size_t i = 0; i < kCauses; ++i) {
    if (sums[i]) split[CauseKey(static_cast<Cause>(i))] = *sums[i];
  }
  return split;
}

std::vector<PathSlice> DrawPath(const Trace& trace, const Steps& steps,
                                const std::vector<PathPiece>& path) {
  std::vector<PathSlice> slices;
  if (steps.empty() || path.empty()) return slices;
  const Span whole{path.front().span.begin_ns, path.back().span.end_ns};
  const int64_t width = std::max<int64_t>(
      1, whole.length() / (kSlicesPerStep * steps.windows.size()));
  size_t next = 0;
  for (int64_t begin = whole.begin_ns; begin < whole.end_ns; begin += width) {
    const int64_t end = std::min(begin + width, whole.end_ns);
    // The cause that takes most of the slice represents it.
    std::array<int64_t, kCauses> ns{};
    std::array<const PathPiece*, kCauses> longest{};
    while (path[next].span.end_ns <= begin) ++next;
    for (size_t i = next; i < path.size() && path[i].span.begin_ns < end; ++i) {
      const size_t cause = static_cast<size_t>(path[i].cause);
      ns[cause] += std::min(path[i].span.end_ns, end) -
                   std::max(path[i].span.begin_ns, begin);
      if (longest[cause] == nullptr ||
          path[i].span.length() > longest[cause]->span.length()) {
        longest[cause] = &path[i];
      }
    }
    const size_t most = std::ranges::max_element(ns) - ns.begin();
    if (longest[most] == nullptr) continue;  // the path does not cover it
    const char* category = CauseKey(static_cast<Cause>(most));
    if (!slices.empty() && slices.back().category == category &&
        slices.back().end_ns == begin) {
      slices.back().end_ns = end;
    } else {
      slices.push_back(
          {.category = category,
           .name = std::string(trace.name(NameOf(trace, *longest[most]))),
           .begin_ns = begin,
           .end_ns = end});
    }
  }
  return slices;
}

}  // namespace stepscope
