#include "replay/gpu/device_edit.h"

#include <algorithm>
#include <cmath>

namespace stepscope {
namespace {

constexpr double kHandOverNs = 50'000;  // taking a finished batch
// (M) two traces of one training with 0 and 4 workers: with them the training
// thread needs 15 to 20 % more for the same ops.
constexpr double kBesideWorkers = 0.1;
constexpr double kAsyncCallNs = 10'000;  // issuing a copy and not waiting

void ScaleWorks(const Edit& edit, const DeviceProgram& program,
                EditedProgram& edited) {
  for (const ActivityScale& scale : edit.scales) {
    const uint32_t work = ActivityOf(program, scale.work);
    if (work == kNoActivity) continue;
    const double saved = std::min(1.0, (1 - scale.factor) * edit.scale_error);
    edited.work_ns[work] *= 1 - saved;
  }
  if (!edit.drop_zero_grad && edit.batch == 1) return;
  for (size_t i = 0; i < program.works.size(); ++i) {
    const DeviceNode& work = program.works[i];
    if (edit.drop_zero_grad && work.zero_grad) edited.work_ns[i] = 0;
    if (work.to_or_from_host) edited.work_ns[i] *= edit.batch;
  }
}

void PlaceWorks(const Edit& edit, const DeviceProgram& program,
                EditedProgram& edited) {
  const auto mark = [&](const std::vector<ActivityRef>& refs, const auto& set) {
    for (const ActivityRef& ref : refs) {
      const uint32_t work = ActivityOf(program, ref);
      if (work != kNoActivity) set(work);
    }
  };
  mark(edit.side_stream,
       [&](uint32_t i) { edited.place[i] = WorkPlace::kAside; });
  mark(edit.overlapped,
       [&](uint32_t i) { edited.place[i] = WorkPlace::kOverlapped; });
  mark(edit.no_dependency,
       [&](uint32_t i) { edited.waits_for_streams[i] = false; });
}

void DropWaits(const Edit& edit, const DeviceProgram& program,
               EditedProgram& edited) {
  for (RowId call : edit.no_wait) {
    if (call >= program.node_of_call.size()) continue;
    const uint32_t node = program.node_of_call[call];
    if (node == kNoActivity) continue;
    edited.waits[node] = false;
    edited.own_ns[node] = std::min(edited.own_ns[node], kAsyncCallNs);
  }
}

// Workers that have a core: the launching thread needs one for itself.
int FreeWorkers(const Edit& edit, const DeviceProgram& program) {
  return program.cores > 0 ? std::min(edit.workers, program.cores - 1)
                           : edit.workers;
}

// How much longer the training process's own code takes beside workers that it
// did not have when it was recorded: they share caches, memory and the clock
// that a busy package can hold.
double BesideWorkers(const Edit& edit, const DeviceProgram& program) {
  if (!program.loads_in_process || program.batch_ns <= 0) return 1;
  const double loading = program.batch_ns * program.batches_per_step;
  const double rest = std::max(program.measured_ns - loading, 1.0);
  const double busy = std::min(1.0, loading * edit.worker_cost / rest);
  const double dearer = kBesideWorkers + (edit.worker_cost - 1) / 2;
  return 1 + std::max(0.0, dearer) * busy;
}

void ShortenLoading(const Edit& edit, const DeviceProgram& program,
                    EditedProgram& edited) {
  const bool workers = FreeWorkers(edit, program) >= 1;
  if (!workers && edit.batch == 1) return;
  const double slower = workers ? BesideWorkers(edit, program) : 1;
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

// Framework code between two launches takes at most `dispatch_ns`.
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
    if (node.work_count > 0) left = edit.dispatch_ns;
  }
}

void ShortenGaps(const Edit& edit, const DeviceProgram& program,
                 EditedProgram& edited) {
  if (!edit.drop_zero_grad && !edit.drop_unused_graph) return;
  for (size_t i = 0; i < program.hosts.size(); ++i) {
    const HostNode& node = program.hosts[i];
    if (edit.drop_zero_grad) {
      edited.gap_ns[i] = std::max(0.0, edited.gap_ns[i] - node.zero_grad_ns);
      if (node.work_count > 0 && program.works[node.first_work].zero_grad) {
        edited.own_ns[i] = 0;
      }
    }
    if (edit.drop_unused_graph) {
      edited.gap_ns[i] = std::max(0.0, edited.gap_ns[i] - node.unused_ns);
    }
  }
}

// Each node's part inside a cut shrinks by one factor.
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

bool ChangesWorks(const Edit& edit) {
  return !edit.scales.empty() || !edit.side_stream.empty() ||
         !edit.overlapped.empty() || edit.drop_zero_grad || edit.batch != 1;
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
  edited.work_ns.reserve(program.works.size());
  for (const DeviceNode& work : program.works) {
    edited.work_ns.push_back(work.span.length());
  }
  edited.place.assign(program.works.size(), WorkPlace::kOwnStream);
  edited.waits_for_streams.assign(program.works.size(), true);
  return edited;
}

void Apply(const Edit& edit, const DeviceProgram& program,
           const EditedProgram& unedited, EditedProgram& edited) {
  edited = unedited;
  ScaleWorks(edit, program, edited);
  PlaceWorks(edit, program, edited);
  DropWaits(edit, program, edited);
  ShortenLoading(edit, program, edited);
  CutHost(edit, program, edited);
  ShortenGaps(edit, program, edited);
  ShortenDispatch(edit, program, edited);
  if (!ChangesWorks(edit)) return;
  double before = 0, after = 0;
  for (size_t i = 0; i < program.works.size(); ++i) {
    before += unedited.work_ns[i];
    // What runs beside its stream is meant to hold nothing up.
    if (edited.place[i] == WorkPlace::kOwnStream) after += edited.work_ns[i];
  }
  if (before > 0) edited.contention = after / before;
}

EditedProgram HostOnly(const EditedProgram& unedited) {
  EditedProgram edited = unedited;
  std::ranges::fill(edited.work_ns, 0.0);
  edited.contention = 0;
  edited.latency = 0;
  return edited;
}

double BatchPeriodNs(const Edit& edit, const DeviceProgram& program) {
  const int workers = FreeWorkers(edit, program);
  if (workers < 1 || program.batch_ns <= 0) return 0;
  return program.batch_ns * program.batches_per_step * edit.worker_cost *
         edit.batch / workers;
}

}  // namespace stepscope
