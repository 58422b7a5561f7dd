// FindStreamWaits(): why each activity started when it did. A start is
// explained by its launch, its stream, a wait for another stream, or other
// activities that used the device. Any further delay is left out of the
// program.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ops/by_name.h"
#include "ops/contains.h"
#include "replay/gpu/device_waits.h"
#include "replay/gpu/recorded_waits.h"
#include "steps/steps.h"

namespace stepscope {
namespace {

// Time from a launch to the start on an idle device, used if the run shows
// none.
constexpr double kUsualLatencyNs = 5'000;

// Longer times are not latency but queueing behind unrecorded activities.
constexpr double kMaxLatencyNs = 50'000;
// With fewer samples, kUsualLatencyNs is used instead of their median.
constexpr size_t kMinSamples = 4;

class StreamWaits {
 public:
  StreamWaits(const Trace& trace, DeviceProgram& program)
      : trace_(trace),
        program_(program),
        by_end_(program),
        by_stream_(program.streams) {
    for (uint32_t i = 0; i < program.activities.size(); ++i) {
      const DeviceNode& activity = program.activities[i];
      if (!activity.collective) by_stream_[activity.stream].push_back(i);
    }
  }

  void Find() {
    FindEdges();
    FindStarts();
  }

 private:
  void FindEdges();
  uint32_t BeforeInGraph(uint32_t index) const;
  void FindStarts();
  void FindHolder(DeviceNode& activity) const;
  int64_t Launched(const DeviceNode& activity) const {
    return program_.hosts[activity.host].gap.end_ns +
           std::llround(activity.offset_ns);
  }
  int64_t LastEdge(const DeviceNode& activity, int64_t free_ns) const;
  std::array<double, 3> TypicalLatencies() const;

  const Trace& trace_;
  DeviceProgram& program_;
  ByEnd by_end_;
  std::vector<std::vector<uint32_t>> by_stream_;  // activities that compute
};

bool WaitsForEvent(std::string_view call) {
  return Contains(call, "StreamWaitEvent");
}

// If a wait (cudaStreamWaitEvent) was put into a stream since the last launch
// to it, the next activity waits for an activity of another stream. Most
// recordings name neither the stream nor the event: the activity is then taken
// to be the one that ended last before this one began, among those launched
// before the wait.
void StreamWaits::FindEdges() {
  RecordedWaits recorded(trace_, program_);
  ByName waits_for_event(trace_, &WaitsForEvent);
  std::vector<int64_t> last_launch(program_.streams, -1);
  int64_t last_wait = -1;
  std::vector<DeviceNode>& activities = program_.activities;
  for (uint32_t h = 0; h < program_.hosts.size(); ++h) {
    const HostNode& node = program_.hosts[h];
    if (node.call != kNone &&
        waits_for_event(trace_.runtime_calls()[node.call].name) &&
        !recorded.NamesWaitOf(node.call)) {
      last_wait = h;
    }
    const std::span launched =
        std::span(activities).subspan(node.first_activity, node.activity_count);
    const bool branches = std::ranges::any_of(launched, [&](const auto& a) {
      return a.in_graph && a.stream != launched.front().stream;
    });
    for (uint32_t i = node.first_activity;
         i < node.first_activity + node.activity_count; ++i) {
      DeviceNode& activity = activities[i];
      activity.first_wait = program_.waits.size();
      const auto add = [&](uint32_t other) {
        if (other != kNoActivity) program_.waits.push_back(other);
      };
      if (recorded.Names(activity.stream)) {
        recorded.ForEachNewWait(i, add);
      } else if (last_wait > last_launch[activity.stream]) {
        add(by_end_.LastBy(
            activity.span.begin_ns + kEventRoundingNs, [&](uint32_t j) {
              return activities[j].stream != activity.stream &&
                     activities[j].host < static_cast<uint32_t>(last_wait);
            }));
      }
      if (branches) add(BeforeInGraph(i));
      activity.wait_count = program_.waits.size() - activity.first_wait;
      last_launch[activity.stream] = h;
    }
  }
}

// Returns the activity of another stream after which this one ran in its graph.
// A graph is launched as a whole and does not show what its nodes wait for, so
// they keep their recorded order.
uint32_t StreamWaits::BeforeInGraph(uint32_t index) const {
  const std::vector<DeviceNode>& activities = program_.activities;
  const DeviceNode& activity = activities[index];
  return by_end_.LastBy(activity.span.begin_ns, [&](uint32_t j) {
    return j < index && activities[j].stream != activity.stream &&
           SameGraph(activity, activities[j]);
  });
}

// Median time in ns from launch to start on an idle device, by table.
std::array<double, 3> StreamWaits::TypicalLatencies() const {
  std::array<std::vector<double>, 3> delays;
  std::vector<int64_t> free(program_.streams);
  for (const DeviceNode& activity : program_.activities) {
    const int64_t launched = Launched(activity);
    if (activity.host != kBacklogNode && free[activity.stream] < launched &&
        activity.wait_count == 0) {
      delays[static_cast<size_t>(activity.ref.table)].push_back(
          activity.span.begin_ns - launched);
    }
    free[activity.stream] =
        std::max(free[activity.stream], activity.span.end_ns);
  }
  std::array<double, 3> typical;
  for (size_t i = 0; i < 3; ++i) {
    typical[i] = delays[i].size() < kMinSamples
                     ? kUsualLatencyNs
                     : std::min(Median(delays[i]), kMaxLatencyNs);
  }
  return typical;
}

// Returns when the activity could start according to its edges, in recorded
// time.
int64_t StreamWaits::LastEdge(const DeviceNode& activity,
                              int64_t free_ns) const {
  int64_t ready = std::max(Launched(activity), free_ns);
  for (uint32_t i = 0; i < activity.wait_count; ++i) {
    const uint32_t other = program_.waits[activity.first_wait + i];
    ready = std::max(ready, program_.activities[other].span.end_ns);
  }
  return std::min(ready, activity.span.begin_ns);
}

// Finds the activity of another stream that kept this one waiting: one that was
// running, or had just ended, when this one started. Collectives do not count,
// because they use few of the device's multiprocessors.
void StreamWaits::FindHolder(DeviceNode& activity) const {
  const std::vector<DeviceNode>& activities = program_.activities;
  const int64_t begin = activity.span.begin_ns;
  const auto index = static_cast<uint32_t>(&activity - activities.data());
  for (const std::vector<uint32_t>& queue : by_stream_) {
    // Activities of one stream run in the order of launching.
    auto it = std::ranges::lower_bound(queue, index);
    while (it != queue.begin() && activities[*(it - 1)].span.begin_ns >= begin)
      --it;
    if (it == queue.begin()) continue;
    const uint32_t last = *(it - 1);
    const int64_t end = activities[last].span.end_ns;
    if (activities[last].stream == activity.stream ||
        end < begin - kQueuedLatencyNs ||
        (activity.held_by != kNoActivity &&
         end <= activities[activity.held_by].span.end_ns)) {
      continue;
    }
    activity.held_by = last;
    activity.held_ns = static_cast<float>(begin - end);
  }
}

void StreamWaits::FindStarts() {
  const std::array<double, 3> typical = TypicalLatencies();
  std::vector<Span> busy;
  busy.reserve(program_.activities.size());
  for (const DeviceNode& activity : program_.activities)
    busy.push_back(activity.span);
  busy = Merge(std::move(busy));

  std::vector<int64_t> free(program_.streams, INT64_MIN);
  bool in_steps = false;
  for (DeviceNode& activity : program_.activities) {
    if (!in_steps && activity.host >= program_.first_host) {
      in_steps = true;
      if (program_.first_lag_ns > 0) {
        for (int64_t& ns : free) ns = std::max(ns, program_.first_begin_ns);
      }
    }
    const HostNode& host = program_.hosts[activity.host];
    const int64_t begin = activity.span.begin_ns;
    const int64_t launched = Launched(activity);
    int64_t& free_ns = free[activity.stream];
    if (free_ns > begin) activity.overlap_ns = begin - free_ns;
    const int64_t ready = LastEdge(activity, free_ns);
    free_ns = std::max(free_ns, activity.span.end_ns);

    double latency = std::max(
        2 * typical[static_cast<size_t>(activity.ref.table)], kUsualLatencyNs);
    // On an idle device, the launch call is part of the latency.
    if (ready == launched) latency += host.call_end_ns - host.gap.end_ns;
    activity.latency_ns = std::min<double>(begin - launched, latency);
    const int64_t late =
        begin -
        std::max<int64_t>(ready, launched + std::llround(activity.latency_ns));
    if (late <= 0) continue;
    // The activity started later than its edges explain. The part in which
    // other streams kept the device busy is explained by that. The rest is a
    // dependency that was not recorded. It is left out of the program, so that
    // the check of the unchanged replay fails instead of hiding it. In a graph
    // the rest is due to the graph itself, and is kept: nodes that were not
    // recorded, and waits between its nodes.
    activity.extra_ns = std::min<int64_t>(
        late, LengthIn(busy, {begin - late, begin}) + kQueuedLatencyNs);
    if (activity.in_graph) activity.opaque_ns = late - activity.extra_ns;
    if (activity.extra_ns > kQueuedLatencyNs) FindHolder(activity);
  }
}

}  // namespace

void FindStreamWaits(const Trace& trace, DeviceProgram& program) {
  StreamWaits(trace, program).Find();
}

}  // namespace stepscope
