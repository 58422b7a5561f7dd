// FindStreamWaits(): what holds the start of a device work up.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "replay/gpu/device_waits.h"
#include "steps/steps.h"

namespace stepscope {
namespace {

// Rounding of files that hold whole microseconds.
constexpr int64_t kRoundingNs = 1'000;
// From one kernel to the next on queued work (rules.md 2.3).
constexpr int64_t kQueuedLatencyNs = 10'000;
// Launching on an idle device where the run itself shows none.
constexpr double kUsualLatencyNs = 5'000;

// What lasts longer is queueing behind something that was not recorded.
constexpr double kMostLatencyNs = 50'000;
constexpr size_t kFewSamples = 4;

class StreamWaits {
 public:
  StreamWaits(const Trace& trace, DeviceProgram& program)
      : trace_(trace),
        program_(program),
        by_end_(program),
        by_stream_(program.streams) {
    for (uint32_t i = 0; i < program.works.size(); ++i) {
      const DeviceNode& work = program.works[i];
      if (!work.collective) by_stream_[work.stream].push_back(i);
    }
  }

  void Find() {
    FindEdges();
    FindStarts();
  }

 private:
  void FindEdges();
  void FindStarts();
  void FindHolder(DeviceNode& work) const;
  int64_t Launched(const DeviceNode& work) const {
    return program_.hosts[work.host].gap.end_ns + std::llround(work.offset_ns);
  }
  int64_t LastEdge(const DeviceNode& work, int64_t free_ns) const;
  std::array<double, 3> TypicalLatencies() const;

  const Trace& trace_;
  DeviceProgram& program_;
  ByEnd by_end_;
  std::vector<std::vector<uint32_t>> by_stream_;  // works that compute
};

// A wait put into a stream since the last launch to it: for the work of
// another stream that ended last before the next one there began.
void StreamWaits::FindEdges() {
  std::vector<int64_t> last_launch(program_.streams, -1);
  int64_t last_wait = -1;
  std::vector<DeviceNode>& works = program_.works;
  for (uint32_t h = 0; h < program_.hosts.size(); ++h) {
    const HostNode& node = program_.hosts[h];
    if (node.call != kNone &&
        trace_.name(trace_.runtime_calls()[node.call].name)
                .find("StreamWaitEvent") != std::string_view::npos) {
      last_wait = h;
    }
    for (uint32_t i = node.first_work; i < node.first_work + node.work_count;
         ++i) {
      DeviceNode& work = works[i];
      work.first_wait = program_.waits.size();
      if (last_wait > last_launch[work.stream]) {
        const uint32_t other =
            by_end_.LastBy(work.span.begin_ns + kRoundingNs, [&](uint32_t j) {
              return works[j].stream != work.stream &&
                     works[j].host < static_cast<uint32_t>(last_wait);
            });
        if (other != kNoActivity) program_.waits.push_back(other);
      }
      work.wait_count = program_.waits.size() - work.first_wait;
      last_launch[work.stream] = h;
    }
  }
}

// What launching takes on an idle device, by table.
std::array<double, 3> StreamWaits::TypicalLatencies() const {
  std::array<std::vector<double>, 3> delays;
  std::vector<int64_t> free(program_.streams);
  for (const DeviceNode& work : program_.works) {
    const int64_t launched = Launched(work);
    if (free[work.stream] < launched && work.wait_count == 0) {
      delays[static_cast<size_t>(work.ref.table)].push_back(work.span.begin_ns -
                                                            launched);
    }
    free[work.stream] = std::max(free[work.stream], work.span.end_ns);
  }
  std::array<double, 3> typical;
  for (size_t i = 0; i < 3; ++i) {
    typical[i] = delays[i].size() < kFewSamples
                     ? kUsualLatencyNs
                     : std::min(Median(delays[i]), kMostLatencyNs);
  }
  return typical;
}

// When the last of its edges let the work go.
int64_t StreamWaits::LastEdge(const DeviceNode& work, int64_t free_ns) const {
  int64_t ready = std::max(Launched(work), free_ns);
  for (uint32_t i = 0; i < work.wait_count; ++i) {
    const uint32_t other = program_.waits[work.first_wait + i];
    ready = std::max(ready, program_.works[other].span.end_ns);
  }
  return std::min(ready, work.span.begin_ns);
}

// What ran on another stream when the work began at last, or had just ended.
// Collectives hold few of the device's units.
void StreamWaits::FindHolder(DeviceNode& work) const {
  const std::vector<DeviceNode>& works = program_.works;
  const int64_t begin = work.span.begin_ns;
  const auto index = static_cast<uint32_t>(&work - works.data());
  for (const std::vector<uint32_t>& queue : by_stream_) {
    // In the order of launching, which is that of running.
    auto it = std::ranges::lower_bound(queue, index);
    while (it != queue.begin() && works[*(it - 1)].span.begin_ns >= begin) --it;
    if (it == queue.begin()) continue;
    const uint32_t last = *(it - 1);
    const int64_t end = works[last].span.end_ns;
    if (works[last].stream == work.stream || end < begin - kQueuedLatencyNs ||
        (work.held_by != kNoActivity &&
         end <= works[work.held_by].span.end_ns)) {
      continue;
    }
    work.held_by = last;
    work.held_ns = static_cast<float>(begin - end);
  }
}

void StreamWaits::FindStarts() {
  const std::array<double, 3> typical = TypicalLatencies();
  std::vector<Span> busy;
  busy.reserve(program_.works.size());
  for (const DeviceNode& work : program_.works) busy.push_back(work.span);
  busy = Merge(std::move(busy));

  std::vector<int64_t> free(program_.streams, INT64_MIN);
  bool in_steps = false;
  for (DeviceNode& work : program_.works) {
    if (!in_steps && work.host >= program_.first_host) {
      in_steps = true;
      if (program_.first_lag_ns > 0) {
        for (int64_t& ns : free) ns = std::max(ns, program_.first_begin_ns);
      }
    }
    const HostNode& host = program_.hosts[work.host];
    const int64_t begin = work.span.begin_ns;
    const int64_t launched = Launched(work);
    int64_t& free_ns = free[work.stream];
    if (free_ns > begin) work.overlap_ns = begin - free_ns;
    const int64_t ready = LastEdge(work, free_ns);
    free_ns = std::max(free_ns, work.span.end_ns);

    double latency = std::max(2 * typical[static_cast<size_t>(work.ref.table)],
                              kUsualLatencyNs);
    // On a device that waits for it, its call is part of its latency.
    if (ready == launched) latency += host.call_end_ns - host.gap.end_ns;
    work.latency_ns = std::min<double>(begin - launched, latency);
    const int64_t late =
        begin -
        std::max<int64_t>(ready, launched + std::llround(work.latency_ns));
    if (late <= 0) continue;
    // Other streams kept the device busy, or it is the time from one kernel to
    // the next. Anything else is a dependency that nobody recorded: the replay
    // does not know it, and its check must show that.
    work.extra_ns = std::min<int64_t>(
        late, LengthIn(busy, {begin - late, begin}) + kQueuedLatencyNs);
    if (work.extra_ns > kQueuedLatencyNs) FindHolder(work);
  }
}

}  // namespace

void FindStreamWaits(const Trace& trace, DeviceProgram& program) {
  StreamWaits(trace, program).Find();
}

}  // namespace stepscope
