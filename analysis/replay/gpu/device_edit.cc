#include "replay/gpu/device_edit.h"

#include <algorithm>
#include <cmath>

namespace stepscope {
namespace {

constexpr double kHandOverNs = 50'000;  // taking a finished batch from a worker
// Share by which busy workers slow the training process. In two public traces
// of the same ResNet-50 training, with 0 and 4 workers, the time of the same
// ops differs by 15 to 20 %; 10 % is cautious.
constexpr double kWorkerSlowdown = 0.1;
constexpr double kAsyncCallNs =
    10'000;  // issuing a copy without waiting for it
// At most this share of a gap or call is taken to be the recorder's, because
// the cost of an op is only a mean.
constexpr double kMostOfRecorder = 0.7;

// Scales activities as the edit says, and copies between host and device with
// the batch size.
void ScaleActivities(const Edit& edit, const ReplayParameters& parameters,
                     const DeviceProgram& program, EditedProgram& edited) {
  for (const ActivityScale& scale : edit.scales) {
    const uint32_t activity = ActivityOf(program, scale.activity);
    if (activity == kNoActivity) continue;
    const double effect =
        scale.assumed ? parameters.assumed_effect : parameters.scale_effect;
    const double saved = std::min(1.0, (1 - scale.factor) * effect);
    edited.activity_ns[activity] *= 1 - saved;
  }
  if (!edit.drop_zero_grad && edit.batch == 1) return;
  for (size_t i = 0; i < program.activities.size(); ++i) {
    const DeviceNode& activity = program.activities[i];
    if (edit.drop_zero_grad && activity.zero_grad) edited.activity_ns[i] = 0;
    if (activity.to_or_from_host) edited.activity_ns[i] *= edit.batch;
  }
}

void PlaceActivities(const Edit& edit, const DeviceProgram& program,
                     EditedProgram& edited) {
  const auto mark = [&](const std::vector<ActivityRef>& refs, const auto& set) {
    for (const ActivityRef& ref : refs) {
      const uint32_t activity = ActivityOf(program, ref);
      if (activity != kNoActivity) set(activity);
    }
  };
  mark(edit.side_stream,
       [&](uint32_t i) { edited.place[i] = ActivityPlace::kAside; });
  mark(edit.overlapped,
       [&](uint32_t i) { edited.place[i] = ActivityPlace::kOverlapped; });
  mark(edit.no_dependency,
       [&](uint32_t i) { edited.waits_for_streams[i] = false; });
  if (edit.early.empty()) return;
  edited.early_after.assign(program.activities.size(), kNoActivity);
  for (const EarlyStart& early : edit.early) {
    const uint32_t activity = ActivityOf(program, early.activity);
    const uint32_t after = ActivityOf(program, early.after);
    // The simulation knows the end only of what was launched before.
    if (activity == kNoActivity || after == kNoActivity || after >= activity) {
      continue;
    }
    edited.place[activity] = ActivityPlace::kEarly;
    edited.early_after[activity] = after;
  }
}

// Calls that no longer wait take only the time to issue their work.
void RemoveWaits(const Edit& edit, const DeviceProgram& program,
                 EditedProgram& edited) {
  for (RowId call : edit.no_wait) {
    if (call >= program.node_of_call.size()) continue;
    const uint32_t node = program.node_of_call[call];
    if (node == kNoActivity) continue;
    edited.waits[node] = false;
    edited.own_ns[node] = std::min(edited.own_ns[node], kAsyncCallNs);
  }
}

// The number of workers that get a core; one core is left to the training
// thread.
int FreeWorkers(const Edit& edit, const DeviceProgram& program) {
  return program.cores > 0 ? std::min(edit.workers, program.cores - 1)
                           : edit.workers;
}

// Factor by which workers that the recording did not have slow down the
// training process: they share caches, memory bandwidth and clock frequency
// with it.
double WorkerSlowdown(const ReplayParameters& parameters,
                      const DeviceProgram& program) {
  if (!program.loads_in_process || program.batch_ns <= 0) return 1;
  const double loading = program.batch_ns * program.batches_per_step;
  const double rest = std::max(program.measured_ns - loading, 1.0);
  const double busy = std::min(1.0, loading * parameters.worker_cost / rest);
  const double dearer = kWorkerSlowdown + (parameters.worker_cost - 1) / 2;
  return 1 + std::max(0.0, dearer) * busy;
}

// With workers, a loader range shrinks to the time to take a finished batch,
// and the rest of the host's work slows down. Without, loading grows with the
// batch.
void ShortenLoading(const Edit& edit, const ReplayParameters& parameters,
                    const DeviceProgram& program, EditedProgram& edited) {
  const bool workers = FreeWorkers(edit, program) >= 1;
  if (!workers && edit.batch == 1) return;
  const double slower = workers ? WorkerSlowdown(parameters, program) : 1;
  for (size_t i = 0; i < program.hosts.size(); ++i) {
    edited.own_ns[i] *= slower;
    const RowId loader = program.hosts[i].loader;
    if (loader == kNone) {
      edited.gap_ns[i] *= slower;
    } else if (workers) {
      edited.gap_ns[i] *=
          std::min(1.0, kHandOverNs / program.loader_ns[loader]);
    } else {
      edited.gap_ns[i] *= edit.batch;
    }
  }
}

// Limits the framework code between two launches, and the launch call, to
// `dispatch_ns` together.
void ShortenDispatch(const Edit& edit, const DeviceProgram& program,
                     EditedProgram& edited) {
  if (edit.dispatch_ns < 0) return;
  double left = edit.dispatch_ns;
  for (size_t i = 0; i < program.hosts.size(); ++i) {
    const HostNode& node = program.hosts[i];
    const double in_gap = std::min<double>(node.framework_ns, edited.gap_ns[i]);
    const double kept_gap = std::min(in_gap, left);
    edited.gap_ns[i] -= in_gap - kept_gap;
    left -= kept_gap;
    if (node.launches && node.wait == NodeWait::kNothing) {
      const double kept_call = std::min(edited.own_ns[i], left);
      edited.own_ns[i] = kept_call;
      left -= kept_call;
    }
    if (node.activity_count > 0) left = edit.dispatch_ns;
  }
}

// Removes the host time of zeroing gradients and of making unused nodes.
void ShortenGaps(const Edit& edit, const DeviceProgram& program,
                 EditedProgram& edited) {
  if (!edit.drop_zero_grad && !edit.drop_unused_graph) return;
  for (size_t i = 0; i < program.hosts.size(); ++i) {
    const HostNode& node = program.hosts[i];
    if (edit.drop_zero_grad) {
      edited.gap_ns[i] = std::max(0.0, edited.gap_ns[i] - node.zero_grad_ns);
      if (node.activity_count > 0 &&
          program.activities[node.first_activity].zero_grad) {
        edited.own_ns[i] = 0;
      }
    }
    if (edit.drop_unused_graph) {
      edited.gap_ns[i] = std::max(0.0, edited.gap_ns[i] - node.unused_ns);
    }
  }
}

// Shortens the parts of nodes inside each cut by a common factor, so that
// cut.keep_ns remains.
void CutHost(const Edit& edit, const DeviceProgram& program,
             EditedProgram& edited) {
  const std::vector<HostNode>& hosts = program.hosts;
  for (const HostCut& cut : edit.cuts) {
    if (!std::ranges::count(program.threads, cut.thread)) continue;
    const size_t first = std::ranges::upper_bound(hosts, cut.span.begin_ns, {},
                                                  &HostNode::call_end_ns) -
                         hosts.begin();
    const auto part = [&](Span span) {
      if (span.length() <= 0) return 0.0;
      const int64_t inside = std::min(span.end_ns, cut.span.end_ns) -
                             std::max(span.begin_ns, cut.span.begin_ns);
      return std::max(0.0, static_cast<double>(inside) / span.length());
    };
    const auto each = [&](const auto& visit) {
      for (size_t i = first;
           i < hosts.size() && hosts[i].gap.begin_ns < cut.span.end_ns; ++i) {
        visit(edited.gap_ns[i], part(hosts[i].gap));
        visit(edited.own_ns[i],
              part({hosts[i].gap.end_ns, hosts[i].call_end_ns}));
      }
    };
    double whole = 0;
    each([&](double ns, double share) { whole += ns * share; });
    if (whole <= cut.keep_ns) continue;
    const double lost = 1 - cut.keep_ns / whole;
    each([&](double& ns, double share) { ns -= ns * share * lost; });
  }
}

bool ChangesActivities(const Edit& edit) {
  return !edit.scales.empty() || !edit.side_stream.empty() ||
         !edit.overlapped.empty() || !edit.early.empty() ||
         edit.drop_zero_grad || edit.batch != 1;
}

}  // namespace

EditedProgram Unedited(const DeviceProgram& program) {
  EditedProgram edited;
  edited.gap_ns.reserve(program.hosts.size());
  edited.own_ns.reserve(program.hosts.size());
  edited.waits.reserve(program.hosts.size());
  for (const HostNode& node : program.hosts) {
    edited.gap_ns.push_back(node.gap.length());
    edited.own_ns.push_back(node.own_ns);
    edited.waits.push_back(node.wait != NodeWait::kNothing);
  }
  edited.activity_ns.reserve(program.activities.size());
  for (const DeviceNode& activity : program.activities) {
    edited.activity_ns.push_back(activity.span.length());
  }
  edited.place.assign(program.activities.size(), ActivityPlace::kOwnStream);
  edited.waits_for_streams.assign(program.activities.size(), true);
  return edited;
}

// A recorder callback runs next to the op or call that it records. So its time
// is taken from the gap in which the op starts and, if that is too short, from
// the call and the next gaps.
EditedProgram WithoutRecorder(const DeviceProgram& program,
                              const EditedProgram& recorded) {
  EditedProgram edited = recorded;
  double left = 0;
  for (size_t i = 0; i < program.hosts.size(); ++i) {
    const double own = program.hosts[i].recorder_ns;
    left += own;
    for (double* ns : {&edited.gap_ns[i], &edited.own_ns[i]}) {
      const double taken = std::min(left, kMostOfRecorder * *ns);
      *ns -= taken;
      left -= taken;
    }
    left = std::min(left, own);
  }
  return edited;
}

void Apply(const Edit& edit, const ReplayParameters& parameters,
           const DeviceProgram& program, const EditedProgram& unedited,
           EditedProgram& edited) {
  edited = unedited;
  ScaleActivities(edit, parameters, program, edited);
  PlaceActivities(edit, program, edited);
  RemoveWaits(edit, program, edited);
  ShortenLoading(edit, parameters, program, edited);
  CutHost(edit, program, edited);
  ShortenGaps(edit, program, edited);
  // This must be the last change to host times, because it limits what the
  // other changes leave.
  ShortenDispatch(edit, program, edited);
  // Activities that start late because they share the device start less late if
  // the device has less to do.
  if (!ChangesActivities(edit)) return;
  double before = 0, after = 0;
  for (size_t i = 0; i < program.activities.size(); ++i) {
    before += unedited.activity_ns[i];
    // An activity moved off its stream is meant to delay nothing.
    if (edited.place[i] == ActivityPlace::kOwnStream)
      after += edited.activity_ns[i];
  }
  if (before > 0) edited.contention = after / before;
}

EditedProgram HostOnly(const EditedProgram& unedited) {
  EditedProgram edited = unedited;
  std::ranges::fill(edited.activity_ns, 0.0);
  edited.contention = 0;
  edited.latency = 0;
  return edited;
}

double BatchPeriodNs(const Edit& edit, const ReplayParameters& parameters,
                     const DeviceProgram& program) {
  if (edit.workers < 0) return program.rate.period_ns;
  const int workers = FreeWorkers(edit, program);
  if (workers < 1 || program.batch_ns <= 0) return 0;
  return program.batch_ns * program.batches_per_step * parameters.worker_cost /
         workers;
}

}  // namespace stepscope
