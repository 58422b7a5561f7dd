#include "replay/gpu/device_waits.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>

#include "ops/by_name.h"
#include "ops/contains.h"
#include "replay/gpu/recorded_waits.h"

namespace stepscope {
namespace {

// Error of timestamps: files may hold whole microseconds, and the clocks of
// host and device are converted.
constexpr int64_t kRoundingNs = 2'000;
// A copy call blocks if it covers at least 80 % of the copy. Our own choice.
constexpr double kMinHeldFrac = 0.8;

// A launch call of more than 20 us did more than launch; 5 us are usual.
constexpr int64_t kLongLaunchNs = 20'000;
// Time of a launch call if the recording has none that did not wait.
constexpr int64_t kUsualLaunchNs = 5'000;
// With at least this many recorded launches in flight, a queue may be full. The
// driver's queue holds about 1024 launches, but not all of them start recorded
// activities.
constexpr uint32_t kFullQueue = 500;
// A shorter launch call waited if its queue is nearly as deep as it ever gets,
// and the call is longer than usual. Our own choice.
constexpr double kNearlyDeepest = 0.9;
constexpr double kLongerThanUsual = 1.5;

// True if a copy's call can hold the host until the copy is done.
bool MayBlock(const Copy& copy) {
  const bool on_device = copy.source == MemoryKind::kDevice &&
                         copy.destination == MemoryKind::kDevice;
  const bool pinned = copy.source == MemoryKind::kPinned ||
                      copy.destination == MemoryKind::kPinned;
  return !on_device && !pinned;
}

// Goes through the host nodes in time order and keeps track of what has been
// launched so far, because a call can wait only for that.
class CallWaits {
 public:
  CallWaits(const Trace& trace, DeviceProgram& program)
      : trace_(trace),
        program_(program),
        by_end_(program),
        recorded_(trace, program),
        role_of_(trace, &RoleOf) {}

  void Find() {
    for (HostNode& node : program_.hosts) {
      const uint32_t before = launched_;
      if (node.activity_count > 0)
        launched_ = node.first_activity + node.activity_count;
      if (node.call != kNone && node.launches) FindWait(node);
      for (uint32_t i = before; i < launched_; ++i) {
        busy_until_ = std::max(busy_until_, program_.activities[i].span.end_ns);
      }
    }
  }

 private:
  // The calls that may wait, by what they do. kRelease: of memory.
  enum class CallRole : uint8_t { kOther, kSync, kDeviceSync, kCopy, kRelease };

  static CallRole RoleOf(std::string_view name) {
    if (Contains(name, "Synchronize")) {
      return Contains(name, "Device") || Contains(name, "Ctx")
                 ? CallRole::kDeviceSync
                 : CallRole::kSync;
    }
    if (Contains(name, "Memcpy")) return CallRole::kCopy;
    return (Contains(name, "Free") || Contains(name, "Unregister")) &&
                   !Contains(name, "Async")
               ? CallRole::kRelease
               : CallRole::kOther;
  }

  void FindWait(HostNode& node) {
    const CallRole role = role_of_(trace_.runtime_calls()[node.call].name);
    const int64_t length = node.call_end_ns - node.gap.end_ns;
    if (role == CallRole::kSync || role == CallRole::kDeviceSync) {
      const bool all = role == CallRole::kDeviceSync;
      const uint32_t recorded =
          all ? kNoActivity : recorded_.TargetOf(node.call);
      const uint32_t target =
          recorded == kNoActivity ? LastDone(node) : recorded;
      SetWait(node, all ? NodeWait::kDevice : NodeWait::kActivity, target);
    } else if (role == CallRole::kCopy && node.activity_count > 0) {
      FindCopyWait(node, node.first_activity + node.activity_count - 1);
    } else if (node.activity_count > 0) {
      FindLaunchWait(node, length);
    } else if (role == CallRole::kRelease && length > kShortCallNs) {
      // The call waits for the whole device, even if the recording shows an
      // idle one. It did not wait if an activity ran on after it returned.
      if (busy_until_ <= node.call_end_ns + kRoundingNs) {
        SetWait(node, NodeWait::kDevice, LastDone(node));
      }
    }
  }

  void FindCopyWait(HostNode& node, uint32_t last) {
    const DeviceNode& activity = program_.activities[last];
    if (activity.ref.table != ActivityTable::kCopy ||
        !MayBlock(trace_.copies()[activity.ref.row])) {
      return;
    }
    const Span call{node.gap.end_ns, node.call_end_ns};
    const double held = std::min(call.end_ns, activity.span.end_ns) -
                        std::max(call.begin_ns, activity.span.begin_ns);
    const bool done = activity.span.end_ns <= call.end_ns + kRoundingNs;
    if (done || (call.length() > kShortCallNs &&
                 held >= kMinHeldFrac * activity.span.length())) {
      SetWait(node, NodeWait::kActivity, last);
    }
  }

  // A launch call that takes long while hundreds of launches are in flight
  // waits for room in the queue. It is taken to wait for the activity that
  // ended last before the call returned.
  void FindLaunchWait(HostNode& node, int64_t length_ns) {
    const uint32_t queued = program_.activities[node.first_activity].queued;
    if (queued < kFullQueue) return;
    if (!usual_launch_ns_) usual_launch_ns_ = UsualLaunchNs(program_);
    if (length_ns <= kLongLaunchNs &&
        (queued < kNearlyDeepest * program_.deepest_queue ||
         length_ns <= kLongerThanUsual * *usual_launch_ns_)) {
      return;
    }
    const uint32_t last = LastDone(node);
    if (last == kNoActivity ||
        program_.activities[last].span.end_ns <= node.gap.end_ns) {
      return;
    }
    const double length = node.own_ns;
    SetWait(node, NodeWait::kActivity, last);
    // With room in the queue, the call would still take the usual launch time.
    node.before_ns = std::clamp<double>(*usual_launch_ns_ - node.own_ns, 0,
                                        length - node.own_ns);
    node.own_ns += node.before_ns;
  }

  // Returns the launched activity that ended last before the call returned. Its
  // end is taken to be what the call waited for.
  uint32_t LastDone(const HostNode& node) const {
    return by_end_.LastBy(node.call_end_ns + kRoundingNs,
                          [&](uint32_t i) { return i < launched_; });
  }

  void SetWait(HostNode& node, NodeWait wait, uint32_t target) {
    if (target == kNoActivity) return;
    const DeviceNode& activity = program_.activities[target];
    const int64_t called = node.gap.end_ns;
    node.wait = wait;
    node.target = target;
    node.tail_ns = node.call_end_ns - std::max(activity.span.end_ns, called);
    double own = std::max(node.tail_ns, 0.0);
    if (node.activity_count > 0 && target >= node.first_activity) {
      // The call's own time before its copy, while the device waits for the
      // call.
      own += std::max<int64_t>(
          0, activity.span.begin_ns - std::max(called, busy_until_));
    }
    node.own_ns = std::min(node.own_ns, own);
  }

  const Trace& trace_;
  DeviceProgram& program_;
  ByEnd by_end_;
  std::optional<int64_t> usual_launch_ns_;  // computed only for full queues
  RecordedWaits recorded_;
  ByName<CallRole> role_of_;
  uint32_t launched_ = 0;           // activities launched up to the node
  int64_t busy_until_ = INT64_MIN;  // by activities launched before the node
};

}  // namespace

void CountQueued(DeviceProgram& program) {
  std::vector<std::deque<const DeviceNode*>> in_flight(program.streams);
  for (DeviceNode& activity : program.activities) {
    std::deque<const DeviceNode*>& queue = in_flight[activity.stream];
    const int64_t launched = program.hosts[activity.host].gap.end_ns;
    while (!queue.empty() && queue.front()->span.end_ns <= launched) {
      queue.pop_front();
    }
    // The launch of a graph leaves the queue with its last activity.
    if (!queue.empty() && SameGraph(*queue.back(), activity)) queue.pop_back();
    queue.push_back(&activity);
    activity.queued = queue.size();
    program.deepest_queue = std::max(program.deepest_queue, activity.queued);
  }
}

int64_t UsualLaunchNs(const DeviceProgram& program) {
  std::vector<int64_t> lengths;
  for (const HostNode& node : program.hosts) {
    if (!node.launches || node.activity_count == 0) continue;
    const DeviceNode& first = program.activities[node.first_activity];
    const int64_t length = node.call_end_ns - node.gap.end_ns;
    if (first.ref.table == ActivityTable::kKernel &&
        first.queued < kFullQueue && length <= kLongLaunchNs) {
      lengths.push_back(length);
    }
  }
  if (lengths.empty()) return kUsualLaunchNs;
  const auto middle = lengths.begin() + lengths.size() / 2;
  std::ranges::nth_element(lengths, middle);
  return *middle;
}

ByEnd::ByEnd(const DeviceProgram& program) : program_(program) {
  order_.reserve(program.activities.size());
  for (uint32_t i = 0; i < program.activities.size(); ++i) order_.push_back(i);
  std::ranges::stable_sort(order_, {}, [&](uint32_t i) {
    return program_.activities[i].span.end_ns;
  });
}

std::vector<uint32_t>::const_iterator ByEnd::FirstAfter(int64_t time_ns) const {
  return std::ranges::upper_bound(order_, time_ns, {}, [&](uint32_t i) {
    return program_.activities[i].span.end_ns;
  });
}

void FindCallWaits(const Trace& trace, DeviceProgram& program) {
  CallWaits(trace, program).Find();
}

}  // namespace stepscope
