#include "replay/gpu/record_program.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "device/backlog.h"
#include "device/device_ledger.h"
#include "ops/by_name.h"
#include "ops/contains.h"
#include "replay/gpu/device_gaps.h"
#include "replay/gpu/device_waits.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// A runtime call, in the order of recording.
struct Placed {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  RowId call = kNone;
  bool ours = false;  // made by a thread of the chain
};

struct Loose {  // device rows of all tables, by launch
  ActivityRef ref;
  const DeviceWork* activity = nullptr;
};

bool LaunchesGraph(std::string_view call) {
  return Contains(call, "GraphLaunch");
}

// Makes a program step by step; the functions run in the order of Build().
class Builder {
 public:
  Builder(const Trace& trace, const OpTree& tree, const ReplayWindow& window,
          DeviceProgram& program)
      : trace_(trace),
        tree_(tree),
        steps_(window.steps),
        from_ns_(window.begin_ns),
        backlog_(trace, window.steps.windows.front().host.end_ns),
        program_(program),
        launches_graph_(trace, &LaunchesGraph) {}

  void Build() {
    CollectActivities();
    ChooseThreads();
    MakeHosts(Calls());
    CutAtMarks();
    PlaceActivities();
  }

 private:
  void CollectActivities();
  void ChooseThreads();
  std::vector<Placed> Calls() const;
  // The time of the activity's launch, or of its start if the launch was not
  // recorded.
  int64_t LaunchedNs(const DeviceWork& activity) const {
    return activity.call == kNone
               ? activity.begin_ns
               : trace_.runtime_calls()[activity.call].begin_ns;
  }
  bool IsInGraph(const Loose& loose);
  std::vector<Claim> LoaderClaims() const;
  void MakeHosts(const std::vector<Placed>& calls);
  void CutAtMarks();
  void PlaceActivities();

  const Trace& trace_;
  const OpTree& tree_;
  const Steps& steps_;
  int64_t from_ns_;  // activities launched before this are left out
  Backlog backlog_;
  DeviceProgram& program_;
  ByName<bool> launches_graph_;
  std::vector<Loose> loose_;
  Span window_;
};

void Builder::CollectActivities() {
  const auto add = [&](auto rows, ActivityTable table) {
    for (RowId row = 0; row < rows.size(); ++row) {
      loose_.push_back({{table, row}, &rows[row]});
    }
  };
  loose_.reserve(trace_.kernels().size() + trace_.copies().size() +
                 trace_.memsets().size());
  add(trace_.kernels(), ActivityTable::kKernel);
  add(trace_.copies(), ActivityTable::kCopy);
  add(trace_.memsets(), ActivityTable::kMemset);
  // The window starts with the first step, or with an earlier launch whose
  // activity may still run when the step starts.
  window_ = {steps_.windows.front().host.begin_ns,
             steps_.windows.back().host.end_ns};
  // Include earlier launches whose activities run into the steps.
  for (const Loose& loose : loose_) {
    if (loose.activity->end_ns > window_.begin_ns) {
      from_ns_ = std::min(from_ns_, LaunchedNs(*loose.activity));
    }
  }
  std::erase_if(loose_, [&](const Loose& loose) {
    return LaunchedNs(*loose.activity) < from_ns_ ||
           LaunchedNs(*loose.activity) >= window_.end_ns;
  });
  for (const Loose& loose : loose_) {
    if (loose.activity->call == kNone) continue;
    window_.begin_ns = std::min(window_.begin_ns, LaunchedNs(*loose.activity));
  }
}

// The chain consists of the training thread and the autograd threads. If the
// training thread is unknown, the thread that launches most counts as such.
void Builder::ChooseThreads() {
  RowId training = steps_.thread;
  if (training == kNone) {
    std::vector<int64_t> launches(trace_.threads().size());
    for (const Loose& loose : loose_) {
      if (loose.activity->call == kNone) continue;
      const RowId thread = trace_.runtime_calls()[loose.activity->call].thread;
      if (thread != kNone) ++launches[thread];
    }
    const auto most = std::ranges::max_element(launches);
    if (most != launches.end()) {
      training = static_cast<RowId>(most - launches.begin());
    }
  }
  if (training == kNone) return;
  program_.threads = AutogradThreads(tree_, training);
  program_.threads.push_back(training);
}

std::vector<Placed> Builder::Calls() const {
  std::vector<bool> ours(trace_.threads().size());
  for (RowId thread : program_.threads) ours[thread] = true;
  const std::span<const RuntimeCall> rows = trace_.runtime_calls();
  std::vector<bool> launches(rows.size());
  for (const Loose& loose : loose_) {
    if (loose.activity->call != kNone) launches[loose.activity->call] = true;
  }
  std::vector<Placed> calls;
  for (RowId row = 0; row < rows.size(); ++row) {
    const RuntimeCall& call = rows[row];
    const bool mine = call.thread != kNone && ours[call.thread];
    // Other calls of other threads do not hold up the chain.
    if (!mine && !launches[row]) continue;
    if (call.begin_ns >= window_.end_ns) break;
    if (call.begin_ns < window_.begin_ns) continue;
    calls.push_back(
        {call.begin_ns, std::max(call.end_ns, call.begin_ns), row, mine});
  }
  return calls;
}

// Makes one node per call of the chain. A call inside another call, and a
// launch by another thread during a call, belong to that call's node.
void Builder::MakeHosts(const std::vector<Placed>& calls) {
  program_.node_of_call.assign(trace_.runtime_calls().size(), kNoActivity);
  std::vector<HostNode>& hosts = program_.hosts;
  hosts.reserve(calls.size() + 4 * steps_.windows.size());
  int64_t now = window_.begin_ns;
  // The first node represents the launches of the backlog.
  hosts.push_back({.gap = {now, now}, .call_end_ns = now});
  for (const Placed& call : calls) {
    const bool inside = call.begin_ns < now;
    if (inside && (!call.ours || call.end_ns <= now) && hosts.size() > 1) {
      program_.node_of_call[call.call] = hosts.size() - 1;
      continue;
    }
    HostNode node;
    node.gap = {now, std::max(call.begin_ns, now)};
    node.call_end_ns = call.ours ? call.end_ns : node.gap.end_ns;
    node.call = call.call;
    node.launches = call.ours;
    node.own_ns = node.call_end_ns - node.gap.end_ns;
    now = node.call_end_ns;
    program_.node_of_call[call.call] = hosts.size();
    hosts.push_back(node);
  }
  // A node for the time after the last call, even if it is empty: a step must
  // end at a node.
  now = std::max(now, window_.end_ns);
  hosts.push_back({.gap = {hosts.back().call_end_ns, now}, .call_end_ns = now});
}

// The loader ranges of the training thread, disjoint.
std::vector<Claim> Builder::LoaderClaims() const {
  std::vector<Claim> claims;
  for (RowId row : BatchRanges(trace_, steps_.thread)) {
    const Range& range = trace_.ranges()[row];
    claims.push_back({{range.begin_ns, range.end_ns}, row});
  }
  return Disjoint(std::move(claims));
}

// Splits nodes where a loader range begins or ends and where a step ends, so
// that each gap lies in one range and one step. Updates node_of_call.
void Builder::CutAtMarks() {
  const std::vector<Claim> claims = LoaderClaims();
  std::vector<std::pair<int64_t, int32_t>> marks;  // time, step that ends
  for (const Claim& claim : claims) {
    marks.push_back({claim.span.begin_ns, -1});
    marks.push_back({claim.span.end_ns, -1});
  }
  const int64_t first_ns = steps_.windows.front().host.begin_ns;
  marks.push_back({first_ns, -1});
  for (size_t i = 0; i < steps_.windows.size(); ++i) {
    marks.push_back({steps_.windows[i].host.end_ns, static_cast<int32_t>(i)});
  }
  std::ranges::sort(marks);
  std::vector<HostNode> cut;
  cut.reserve(program_.hosts.size() + marks.size());
  std::vector<uint32_t> moved(program_.hosts.size());
  size_t mark = 0, claim = 0;
  const auto push = [&](HostNode node) {
    while (claim < claims.size() &&
           claims[claim].span.end_ns <= node.gap.begin_ns) {
      ++claim;
    }
    if (claim < claims.size() &&
        claims[claim].span.begin_ns <= node.gap.begin_ns &&
        node.gap.length() > 0) {
      node.loader = claims[claim].range;
    }
    if (node.gap.end_ns <= first_ns) program_.first_host = cut.size() + 1;
    cut.push_back(node);
  };
  for (size_t i = 0; i < program_.hosts.size(); ++i) {
    HostNode rest = program_.hosts[i];
    while (mark < marks.size() && marks[mark].first <= rest.gap.end_ns) {
      const auto [time_ns, step] = marks[mark++];
      HostNode part;
      part.gap = {rest.gap.begin_ns, std::max(time_ns, rest.gap.begin_ns)};
      part.call_end_ns = part.gap.end_ns;
      part.step_end = step;
      rest.gap.begin_ns = part.gap.end_ns;
      if (part.gap.length() > 0 || step >= 0) push(part);
    }
    moved[i] = cut.size();
    push(rest);
  }
  for (uint32_t& node : program_.node_of_call) {
    if (node != kNoActivity) node = moved[node];
  }
  program_.hosts = std::move(cut);
  program_.loader_ns.assign(trace_.ranges().size(), 0);
  for (const HostNode& node : program_.hosts) {
    if (node.loader != kNone) {
      program_.loader_ns[node.loader] += node.gap.length();
    }
  }
}

// True if the activity is part of a CUDA graph. False if its launch was not
// recorded, because such activities may be from several launches.
bool Builder::IsInGraph(const Loose& loose) {
  const RowId call = loose.activity->call;
  if (call == kNone) return false;
  return (loose.ref.table == ActivityTable::kKernel &&
          trace_.kernels()[loose.ref.row].graph != 0) ||
         launches_graph_(trace_.runtime_calls()[call].name);
}

void Builder::PlaceActivities() {
  std::vector<HostNode>& hosts = program_.hosts;
  int64_t unmatched = 0, counted = 0;
  std::vector<std::pair<uint32_t, Loose>> placed;
  placed.reserve(loose_.size());
  for (const Loose& loose : loose_) {
    const DeviceWork& activity = *loose.activity;
    uint32_t node = kBacklogNode;
    if (activity.call != kNone) {
      node = program_.node_of_call[activity.call];
      if (node == kNoActivity) continue;  // launched outside the window
    } else if (activity.end_ns <= window_.begin_ns ||
               activity.begin_ns >= window_.end_ns) {
      continue;
    } else if (!backlog_.Has(activity)) {
      // The launch was lost. It came no later than the activity's start, so the
      // activity counts as launched by the host node at that time.
      ++unmatched;
      const auto after = std::ranges::upper_bound(
          hosts, activity.begin_ns, {},
          [](const HostNode& host) { return host.gap.begin_ns; });
      node = after == hosts.begin() ? 0 : after - hosts.begin() - 1;
    }
    ++counted;
    placed.push_back({node, loose});
  }
  // The activities of a node must be neighbours (HostNode::first_activity).
  std::ranges::stable_sort(placed, [](const auto& a, const auto& b) {
    return a.first != b.first
               ? a.first < b.first
               : a.second.activity->begin_ns < b.second.activity->begin_ns;
  });
  if (counted > 0) {
    program_.unmatched_frac = static_cast<double>(unmatched) / counted;
  }
  program_.activity_of[0].assign(trace_.kernels().size(), kNoActivity);
  program_.activity_of[1].assign(trace_.copies().size(), kNoActivity);
  program_.activity_of[2].assign(trace_.memsets().size(), kNoActivity);
  std::map<std::pair<int32_t, int64_t>, uint32_t> streams;
  ByName is_collective(trace_, &IsCollectiveKernel);
  for (const auto& [host, loose] : placed) {
    const DeviceWork& activity = *loose.activity;
    DeviceNode node;
    node.ref = loose.ref;
    node.span = {activity.begin_ns,
                 std::max(activity.end_ns, activity.begin_ns)};
    node.host = host;
    node.stream = streams
                      .emplace(std::pair{activity.device, activity.stream},
                               streams.size())
                      .first->second;
    if (loose.ref.table == ActivityTable::kKernel) {
      node.collective = is_collective(trace_.kernels()[loose.ref.row].name);
    } else if (loose.ref.table == ActivityTable::kCopy) {
      const Copy& copy = trace_.copies()[loose.ref.row];
      node.to_or_from_host = copy.source != MemoryKind::kDevice ||
                             copy.destination != MemoryKind::kDevice;
    }
    // Launches by other threads, and by calls inside the node's call, come
    // after the start of the node's call.
    if (host != kBacklogNode) {
      node.offset_ns =
          std::max<int64_t>(0, LaunchedNs(activity) - hosts[host].gap.end_ns);
    }
    node.in_graph = IsInGraph(loose);
    if (hosts[host].activity_count++ == 0) {
      hosts[host].first_activity = program_.activities.size();
    }
    program_.activity_of[static_cast<size_t>(loose.ref.table)][loose.ref.row] =
        program_.activities.size();
    program_.activities.push_back(node);
  }
  program_.streams = streams.size();
}

// Sets recorder_ns of the nodes. The cost of recording an op or a Python frame
// belongs to the node in whose gap it starts, that of a call to the call's
// node.
void AddRecorder(const Trace& trace, const OpTree& tree, RowId training,
                 const RecorderCost& cost, DeviceProgram& program) {
  if (cost.op_ns <= 0 && cost.call_ns <= 0 && cost.frame_ns <= 0) return;
  std::vector<HostNode>& hosts = program.hosts;
  for (HostNode& node : hosts) {
    if (node.launches) node.recorder_ns += static_cast<float>(cost.call_ns);
  }
  for (RowId thread : program.threads) {
    for (RowId row : tree.of_thread(thread)) {
      const int64_t begin_ns = trace.ops()[row].begin_ns;
      const auto node =
          std::ranges::upper_bound(hosts, begin_ns, {}, &HostNode::call_end_ns);
      if (node == hosts.end() || begin_ns < node->gap.begin_ns) continue;
      node->recorder_ns += static_cast<float>(cost.op_ns);
    }
  }
  if (cost.frame_ns <= 0) return;
  for (HostNode& node : hosts) {
    node.recorder_ns +=
        static_cast<float>(cost.frame_ns * FramesIn(trace, training, node.gap));
  }
}

}  // namespace

DeviceProgram MakeDeviceProgram(const Trace& trace, const OpTree& tree,
                                const ReplayWindow& window,
                                const StepParts& parts,
                                const RecorderCost& cost) {
  const Steps& steps = window.steps;
  DeviceProgram program;
  program.cores = std::max(trace.run().usable_cores, 0);
  // The ranks of a host share its cores.
  if (program.cores > 0 && trace.run().local_ranks > 1) {
    program.cores = std::max(1, program.cores / trace.run().local_ranks);
  }
  Builder(trace, tree, window, program).Build();
  MeasureGaps(trace, tree, steps, parts, program);
  AddRecorder(trace, tree, steps.thread, cost, program);
  CountQueued(program);
  FindCallWaits(trace, program);
  program.first_begin_ns = steps.windows[0].tiled.begin_ns;
  program.first_lag_ns = static_cast<double>(program.first_begin_ns -
                                             steps.windows[0].host.begin_ns);
  FindStreamWaits(trace, program);
  MeasureSteps(trace, steps, program);
  return program;
}

}  // namespace stepscope
