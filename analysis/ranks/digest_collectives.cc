#include "ranks/digest_collectives.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "device/collectives.h"
#include "evidence/collectives/collective_evidence.h"
#include "ops/by_name.h"
#include "ranks/fnv_hash.h"

namespace stepscope {
namespace {

// A runtime call that takes longer than a launch can was waiting for something.
constexpr int64_t kLaunchNs = 20'000;
// How many calls to look back for one that is still open. A host thread is in
// one call at a time, and few threads make calls.
constexpr int kThreadsInCalls = 16;

// True if no rank has the result before all ranks have contributed. Such a
// collective ends at the same moment on all ranks, so it can align clocks. The
// root of a broadcast, in contrast, may leave early.
bool EndsTogether(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll;
}

// Finds, for one device, when a collective could have begun and for how long it
// held up the work after it.
class DeviceProgress {
 public:
  DeviceProgress(const Trace& trace, int32_t device) : trace_(trace) {
    ByName is_collective(trace, &IsCollectiveKernel);
    std::map<int64_t, int64_t> busy_ns;  // by stream
    std::vector<std::pair<int64_t, const DeviceWork*>> works;
    for (const Kernel& kernel : trace.kernels()) {
      if (kernel.device != device || is_collective(kernel.name)) continue;
      busy_ns[kernel.stream] += kernel.end_ns - kernel.begin_ns;
      Add(kernel);
    }
    for (const Copy& copy : trace.copies()) {
      if (copy.device == device) Add(copy);
    }
    busy_ = Merge(std::move(busy_));
    std::ranges::sort(nexts_);
    const auto compute = std::ranges::max_element(
        busy_ns, {}, [](const auto& entry) { return entry.second; });
    if (compute == busy_ns.end()) return;
    for (const Kernel& kernel : trace.kernels()) {
      if (kernel.device != device || kernel.stream != compute->first ||
          kernel.call == kNone || is_collective(kernel.name)) {
        continue;
      }
      launched_.push_back(
          {trace.runtime_calls()[kernel.call].begin_ns, kernel.end_ns});
    }
    std::ranges::sort(launched_);
    // Make the ends ascending, so that ReadyNs() can find by binary search when
    // all kernels launched before some time have ended.
    for (size_t i = 1; i < launched_.size(); ++i) {
      launched_[i].second =
          std::max(launched_[i].second, launched_[i - 1].second);
    }
  }

  // Returns when the collective could begin: after its launch, and after all
  // kernels that were launched before it on the compute stream, which produce
  // its input.
  int64_t ReadyNs(const Collective& one) const {
    // If the launch was not recorded, assume that it could not begin earlier.
    const RowId call = trace_.kernels()[one.kernel].call;
    if (call == kNone) return one.moved.begin_ns;
    const int64_t launch = trace_.runtime_calls()[call].begin_ns;
    const auto after = std::ranges::lower_bound(
        launched_, std::pair<int64_t, int64_t>{launch, INT64_MIN});
    const int64_t input =
        after == launched_.begin() ? INT64_MIN : std::prev(after)->second;
    return std::min(std::max(launch, input), one.moved.begin_ns);
  }

  // Returns how long the collective held up the device, or 0. It held it up if
  // nothing computes when the collective ends, and either the next work was
  // already launched or the host was waiting until then.
  int64_t StalledNs(const Collective& one, int64_t ready_ns) const {
    const int64_t end = one.moved.end_ns;
    const auto after = std::ranges::upper_bound(busy_, end, {}, &Span::end_ns);
    if (after != busy_.end() && after->begin_ns < end) return 0;
    const auto next = std::ranges::lower_bound(
        nexts_, std::pair<int64_t, int64_t>{end, INT64_MIN});
    // If the next work was launched after the end, the host was late, not the
    // collective.
    const bool was_queued = next != nexts_.end() && next->second < end;
    if (!was_queued && !HostWaits(end)) return 0;
    const int64_t computed =
        after == busy_.begin() ? INT64_MIN : std::prev(after)->end_ns;
    return std::max<int64_t>(0, end - std::max(computed, ready_ns));
  }

 private:
  void Add(const DeviceWork& work) {
    busy_.push_back({work.begin_ns, work.end_ns});
    nexts_.push_back(
        {work.begin_ns, work.call == kNone
                            ? work.begin_ns
                            : trace_.runtime_calls()[work.call].begin_ns});
  }
  bool HostWaits(int64_t ns) const {
    const auto calls = trace_.runtime_calls();
    auto it = std::ranges::upper_bound(calls, ns, {}, &RuntimeCall::begin_ns);
    for (int i = 0; i < kThreadsInCalls && it != calls.begin(); ++i) {
      --it;
      if (it->end_ns >= ns && it->end_ns - it->begin_ns > kLaunchNs) {
        return true;
      }
    }
    return false;
  }

  const Trace& trace_;
  std::vector<Span> busy_;  // with anything but collectives
  // The same activities: (start, launch).
  std::vector<std::pair<int64_t, int64_t>> nexts_;
  // (Launch, end of all kernels launched on the compute stream up to then).
  std::vector<std::pair<int64_t, int64_t>> launched_;
};

// The same for a CPU-only run, in which the training thread waits.
class HostProgress {
 public:
  explicit HostProgress(const AnalysisContext& context) {
    for (const std::vector<Segment>& step : context.timelines) {
      for (const Segment& segment : step) {
        if (segment.cause != Cause::kCommunication) continue;
        waits_.push_back({segment.begin_ns, segment.end_ns});
      }
    }
    waits_ = Merge(std::move(waits_));
  }
  static int64_t ReadyNs(const Collective& one) {
    return one.op == kNone ? one.moved.begin_ns
                           : std::min(one.issued.begin_ns, one.moved.begin_ns);
  }
  int64_t StalledNs(const Collective& one, int64_t ready_ns) const {
    const int64_t end = one.moved.end_ns;
    const auto wait = std::ranges::lower_bound(waits_, end, {}, &Span::end_ns);
    if (wait == waits_.end() || wait->begin_ns >= end) return 0;
    return end - std::max(wait->begin_ns, ready_ns);
  }

 private:
  std::vector<Span> waits_;
};

class Digester {
 public:
  Digester(const AnalysisContext& context, RankDigest& digest)
      : m_(context), digest_(digest), host_(context) {
    shards_ = ShardsParameters(m_.trace);
  }

  void Add(const Collective& one) {
    const Communication* call =
        one.communication == kNone
            ? nullptr
            : &m_.trace.communications()[one.communication];
    FnvHasher hash;
    hash.Add(m_.trace.name(one.group));
    // Two groups with the same ranks (such as the world and the data-parallel
    // group) run on different streams, so the description must tell them apart.
    if (call != nullptr) hash.Add(m_.trace.name(call->group_description));
    hash.Add(static_cast<int64_t>(one.kind));
    hash.Add(one.integer ? 1 : 0);
    RankCollective shared;
    shared.step = m_.steps.windows[one.step].number;
    shared.group = hash.value();
    shared.ordinal = ordinals_[{shared.step, shared.group}]++;
    shared.ends_together = EndsTogether(one.kind);
    shared.kernel = one.kernel;
    shared.begin_ns = one.moved.begin_ns;
    shared.end_ns = one.moved.end_ns;
    shared.exposed_ns = one.exposed_ns;
    shared.bytes = one.bytes;
    SetProgress(one, shared);
    digest_.collectives.push_back(shared);
    Count(one, call, shared.group);
  }

 private:
  void SetProgress(const Collective& one, RankCollective& shared) {
    int64_t ready = 0;
    if (one.kernel == kNone) {
      ready = HostProgress::ReadyNs(one);
      shared.stalled_ns = host_.StalledNs(one, ready);
    } else {
      const int32_t device = m_.trace.kernels()[one.kernel].device;
      const DeviceProgress& progress =
          devices_.try_emplace(device, m_.trace, device).first->second;
      ready = progress.ReadyNs(one);
      shared.stalled_ns = progress.StalledNs(one, ready);
    }
    shared.queued_ns = shared.begin_ns - ready;
  }

  void Count(const Collective& one, const Communication* call, uint64_t key) {
    const auto [entry, is_new] = groups_.emplace(key, digest_.groups.size());
    if (is_new) {
      GroupTraffic group;
      group.group = key;
      group.size = one.group_size;
      if (call != nullptr) {
        group.name = m_.trace.name(call->group_name);
        group.description = m_.trace.name(call->group_description);
        group.members = m_.trace.name(call->group_ranks);
      }
      group.kind = CollectiveName(one.kind);
      group.is_integer = one.integer;
      group.shards = shards_;
      group.bus_factor =
          BusFactor(one.kind, one.group_size > 0 ? one.group_size
                                                 : m_.trace.run().world_size);
      digest_.groups.push_back(std::move(group));
    }
    GroupTraffic& group = digest_.groups[entry->second];
    ++group.count;
    group.gradients += one.gradient;
    if (call == nullptr || one.kind != CollectiveKind::kPointToPoint) return;
    const std::string_view name = m_.trace.name(call->name);
    group.sent += name.ends_with("send");
    group.received += name.ends_with("recv");
  }

  const AnalysisContext& m_;
  RankDigest& digest_;
  bool shards_ = false;
  HostProgress host_;
  std::map<int32_t, DeviceProgress> devices_;
  std::map<std::pair<int64_t, uint64_t>, int32_t> ordinals_;
  std::unordered_map<uint64_t, size_t> groups_;
};

// Keeps only the collectives of the first steps, at most kMostRankCollectives.
// All ranks keep the same steps, because they run the same collectives. Reports
// what was cut as a loss.
void LimitCollectives(std::vector<RankCollective>& list, Report& report) {
  if (list.size() <= kMostRankCollectives) return;
  const size_t all = list.size();
  size_t kept = kMostRankCollectives;
  while (kept > 0 && list[kept - 1].step == list[kept].step) --kept;
  if (kept == 0) kept = kMostRankCollectives;  // a single huge step
  list.resize(kept);
  report.losses.push_back(
      {.name = "collectives-cut",
       .detail = "ranks are compared by the first " + std::to_string(kept) +
                 " of " + std::to_string(all) + " collectives, up to step " +
                 std::to_string(list.back().step) +
                 "; record fewer steps to "
                 "compare all of them",
       .count = static_cast<int64_t>(all - kept),
       .severity = Severity::kNote});
}

}  // namespace

void DigestCollectives(const AnalysisContext& context, RankDigest& digest) {
  Digester digester(context, digest);
  for (const Collective& one : context.collectives) {
    if (one.step == kNoStep ||
        context.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    digester.Add(one);
  }
  LimitCollectives(digest.collectives, digest.report);
}

}  // namespace stepscope
