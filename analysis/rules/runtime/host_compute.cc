// Does the host compute with tensors in its own memory while the GPU waits?
// Sources: PyTorch documentation, torch.optim: "If you need to move a model to
// GPU via .cuda(), please do so before constructing optimizers for it";
// Rajbhandari et al. 2021, "ZeRO-Infinity": what offloading the optimizer
// costs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/gaps.h"
#include "evidence/call_site.h"
#include "evidence/host_copies.h"
#include "evidence/host_spans.h"
#include "evidence/optimizer_work.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace host_compute_rules {
namespace {

// The framework takes 5 to 20 us per op. An op that takes longer than this, and
// calls nothing of the device, computes.
constexpr int64_t kComputesNs = 100'000;
constexpr double kShare = 0.03;  // as XProf calls moderate

// True for ops that host-created-tensor is about.
bool Creates(std::string_view name) {
  name.remove_prefix(std::min<size_t>(name.size(), 6));  // "aten::"
  return name.starts_with("rand") || name.starts_with("normal") ||
         IsAnyOf(name, {"arange", "zeros", "ones", "full", "empty", "linspace",
                        "eye", "bernoulli_", "uniform_", "multinomial"});
}

// Work that the host computes, per steady step.
struct HostWork {
  double idle_ns = 0;          // idle time of the GPU meanwhile
  double in_optimizer_ns = 0;  // the part in the optimizer's step
  double all_idle_ns = 0;      // all idle time of the GPU
  double downloads_ns = 0;     // idle, blocked for tensors that ops take
  double uploads_ns = 0;       // blocked in copies of what ops made
  std::vector<RowId> ops = {};
  std::set<size_t> steps = {};
  RowId longest = kNone;
};

// Optimizer's steps that call no op but copies while the GPU is idle: native
// code updates parameters in the host's memory, as DeepSpeedCPUAdam does.
struct NativeUpdates {
  double idle_ns = 0;  // per steady step
  double host_ns = 0;  // per steady step
  std::set<size_t> steps = {};
  Span longest = {};
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context)
      : m_(context),
        loads_(LoaderSpans(m_.trace, m_.steps.thread)),
        calls_device_(OpsThatCall(m_.trace)),
        idle_(IdleSpans(m_.waits.idle)) {
    AddLastIdle();
  }

  HostWork Find() {
    HostWork work;
    std::map<size_t, std::set<int64_t>> taken;  // bytes of tensors, by step
    std::vector<Span> uploads;
    RowId made = kNone;  // the last op, until another op takes its result
    int64_t longest_ns = 0;
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
      const Op& op = m_.trace.ops()[row];
      if (op.parent != kNone) continue;
      if (made != kNone && calls_device_[row]) {
        if (MayMove(row, made)) uploads.push_back({op.begin_ns, op.end_ns});
        made = kNone;
      }
      if (!Computes(row)) continue;
      const size_t step = SteadyStepAt(m_.steps, op.begin_ns);
      if (step == m_.steps.windows.size()) continue;
      made = row;
      // Computing on the host while the device is busy costs nothing.
      if (LengthIn(idle_, {op.begin_ns, op.end_ns}) <= 0) continue;
      const double idle = IdleAround({op.begin_ns, op.end_ns});
      work.idle_ns += idle;
      if (Covers(m_.parts.optimizer.spans, op.begin_ns)) {
        work.in_optimizer_ns += idle;
      }
      work.ops.push_back(row);
      work.steps.insert(step);
      const TensorShape first = TensorArgument(m_.trace, row, 0);
      if (first.known()) taken[step].insert(BytesOf(m_.trace, first));
      if (op.end_ns - op.begin_ns > longest_ns) {
        longest_ns = op.end_ns - op.begin_ns;
        work.longest = row;
      }
    }
    // All copies in the optimizer's step belong to it.
    const WaitSums copies =
        SumWaits(m_.waits, m_.steps, [&](const HostWait& wait) {
          if (wait.thread != m_.steps.thread ||
              (wait.kind != WaitKind::kToHost &&
               wait.kind != WaitKind::kToDevice)) {
            return false;
          }
          const auto here = taken.find(wait.step);
          return Covers(m_.parts.optimizer.spans, wait.span.begin_ns) ||
                 (taken.empty() && wait.kind == WaitKind::kToHost &&
                  IsTakenBy(work.ops, wait.span.end_ns)) ||
                 (here != taken.end() && wait.copy != kNone &&
                  !Covers(uploads, wait.span.begin_ns) &&
                  here->second.contains(m_.trace.copies()[wait.copy].bytes));
        });
    work.downloads_ns = copies.blocked_ns - copies.queued_ns;
    const WaitSums results =
        SumWaits(m_.waits, m_.steps, [&](const HostWait& wait) {
          return wait.thread == m_.steps.thread &&
                 wait.kind == WaitKind::kToDevice &&
                 !Covers(m_.parts.optimizer.spans, wait.span.begin_ns) &&
                 Covers(uploads, wait.span.begin_ns);
        });
    work.uploads_ns = results.blocked_ns - results.queued_ns;
    for (size_t i : m_.steps.steady) {
      work.all_idle_ns +=
          static_cast<double>(LengthIn(idle_, m_.steps.windows[i].tiled));
    }
    const auto steps = static_cast<double>(m_.steps.steady.size());
    work.all_idle_ns /= steps;
    work.idle_ns /= steps;
    work.in_optimizer_ns /= steps;
    return work;
  }

  NativeUpdates FindNativeUpdates() {
    NativeUpdates found;
    counted_ns_ = INT64_MIN;
    for (const Span& span : m_.parts.optimizer.spans) {
      const size_t step = SteadyStepAt(m_.steps, span.begin_ns);
      if (step == m_.steps.windows.size() || span.length() < kComputesNs) {
        continue;
      }
      if (UpdatesByOps(span) || 2 * LengthIn(idle_, span) < span.length()) {
        continue;
      }
      found.idle_ns += IdleAround(span);
      found.host_ns += static_cast<double>(span.length());
      found.steps.insert(step);
      if (span.length() > found.longest.length()) found.longest = span;
    }
    const auto steps = static_cast<double>(m_.steps.steady.size());
    found.idle_ns /= steps;
    found.host_ns /= steps;
    return found;
  }

 private:
  // Adds the idle time at the end of the last step, which no launch ends.
  void AddLastIdle() {
    if (m_.steps.steady.empty()) return;
    const Span step = m_.steps.windows[m_.steps.steady.back()].tiled;
    int64_t done_ns = step.begin_ns;
    const auto add = [&](const auto& activities) {
      for (const auto& one : activities) {
        if (one.begin_ns < step.end_ns) done_ns = std::max(done_ns, one.end_ns);
      }
    };
    add(m_.trace.kernels());
    add(m_.trace.copies());
    add(m_.trace.memsets());
    if (done_ns >= step.end_ns ||
        (!idle_.empty() && idle_.back().end_ns > done_ns))
      return;
    idle_.push_back({done_ns, step.end_ns});
  }

  // True if an op in `span` does more than move tensors. Then the time beside
  // ops is Python's.
  bool UpdatesByOps(Span span) const {
    return std::ranges::any_of(
        m_.tree.of_thread(m_.steps.thread, span), [&](RowId row) {
          const std::string_view name = m_.trace.name(m_.trace.ops()[row].name);
          return name.starts_with("aten::") && m_.tree.computes(row) &&
                 !m_.tree.traits(row).bookkeeping &&
                 !IsAnyOf(name, {"aten::copy_", "aten::to", "aten::_to_copy"});
        });
  }
  // True if one of `ops`, in time order, comes right after a download that ends
  // at `end_ns`, or after ops that convert it on the host. Without sizes,
  // nothing else shows that it takes the tensor.
  bool IsTakenBy(const std::vector<RowId>& ops, int64_t end_ns) const {
    const auto next = std::ranges::lower_bound(ops, end_ns, {}, [&](RowId row) {
      return m_.trace.ops()[row].begin_ns;
    });
    if (next == ops.end()) return false;
    const Span until{end_ns, m_.trace.ops()[*next].begin_ns};
    int64_t done_ns = end_ns;
    for (RowId row : m_.tree.of_thread(m_.steps.thread, until)) {
      const Op& op = m_.trace.ops()[row];
      if (op.parent != kNone || op.begin_ns < end_ns) continue;
      if (calls_device_[row] || op.begin_ns - done_ns > kComputesNs) {
        return false;
      }
      done_ns = op.end_ns;
    }
    return until.end_ns - done_ns <= kComputesNs;
  }

  // Returns the idle gaps of the device during which the host is in `span`. A
  // gap ends only when the host reaches its next launch. Each gap counts once.
  double IdleAround(Span span) {
    auto gap =
        std::ranges::upper_bound(idle_, span.begin_ns, {}, &Span::end_ns);
    double ns = 0;
    for (; gap != idle_.end() && gap->begin_ns < span.end_ns; ++gap) {
      if (gap->end_ns <= counted_ns_) continue;
      ns += static_cast<double>(gap->length());
      counted_ns_ = gap->end_ns;
    }
    return ns;
  }

  // True if `row` copies a tensor that may be the result of op `made`, as far
  // as sizes are known.
  bool MayMove(RowId row, RowId made) const {
    if (!IsAnyOf(PlainNameOf(m_.trace, row), {"to", "_to_copy", "copy"})) {
      return false;
    }
    const TensorShape moved = SourceOf(m_.trace, row);
    if (!moved.known()) return true;
    const std::optional<Dims> result = ResultDims(m_.trace, made);
    if (result) return ElementsOf(moved) == ElementsIn(*result);
    // What selects or reduces makes no more than it takes.
    const RowId inputs = m_.trace.ops()[made].inputs;
    if (inputs == kNone) return true;
    const std::vector<Argument>& taken = m_.trace.op_inputs()[inputs].arguments;
    return std::ranges::any_of(taken, [&](const Argument& one) {
      return ElementsOf(moved) <= ElementsIn(one.dims) ||
             Contains(m_.trace.name(one.type), "List");
    });
  }

  bool Computes(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    const int64_t ns = op.end_ns - op.begin_ns;
    if (ns < kComputesNs) return false;
    // Making views of many parts takes long without computing.
    const auto ops = static_cast<int64_t>(m_.tree.inside(row).size());
    return ns >= kComputesNs * std::max<int64_t>(1, ops) &&
           !calls_device_[row] && !m_.tree.traits(row).bookkeeping &&
           m_.trace.name(op.name).starts_with("aten::") &&
           !Creates(m_.trace.name(op.name)) &&
           !m_.tree.traits(row).communication && !Covers(loads_, op.begin_ns);
  }

  const AnalysisContext& m_;
  const std::vector<Span> loads_;
  std::vector<bool> calls_device_;  // by op
  std::vector<Span> idle_;
  int64_t counted_ns_ = INT64_MIN;  // end of the last counted gap
};

constexpr char kStateOnDevice[] =
    "keep parameters and the optimizer's state on the device: "
    "model.to(\"cuda\") before the optimizer is made, and fused=True; "
    "offload it only where the device's memory does not suffice";
constexpr char kStateOnDeviceInCpp[] =
    "keep parameters and the optimizer's state on the device: "
    "model->to(at::kCUDA) before the optimizer is made";

Verdict CheckNativeUpdates(const AnalysisContext& m, Finder& finder) {
  const NativeUpdates work = finder.FindNativeUpdates();
  if (work.idle_ns < kShare * m.step_ns() ||
      !AreMostSteps(m.steps, work.steps.size())) {
    return Clean();
  }
  const std::string name = MeasureOptimizer(m).name;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "The optimizer's step" + (name.empty() ? "" : " (" + name + ")") +
      " takes " + Milliseconds(work.host_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step on the host and calls no op but copies, and the GPU is idle for " +
      Milliseconds(work.idle_ns * 1e-6) +
      " meanwhile. Native code seems to update parameters in the host's "
      "memory.";
  finding.where = "the optimizer's step";
  finding.examples.push_back(
      {m.steps.windows[SteadyStepAt(m.steps, work.longest.begin_ns)].number,
       work.longest.begin_ns, work.longest.end_ns, "the optimizer's step"});
  finding.assumption = "at best: the device updates the parameters in no time";
  finding.fix_python =
      std::string(kStateOnDevice) + " (DeepSpeed: without offload_optimizer)";
  finding.fix_cpp = kStateOnDeviceInCpp;
  finding.wrong_if =
      "the device's memory does not hold the state, or the range contains "
      "work that is not the optimizer's";
  return FireBound(std::move(finding), work.idle_ns);
}

Verdict CheckHostCompute(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  Finder finder(m);
  const HostWork work = finder.Find();
  if (work.longest == kNone || work.idle_ns < kShare * m.step_ns() ||
      !AreMostSteps(m.steps, work.steps.size())) {
    return CheckNativeUpdates(m, finder);
  }
  const bool updates = 2 * work.in_optimizer_ns > work.idle_ns;
  const Op& op = m.trace.ops()[work.longest];
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "The host computes with tensors in its own memory, and the GPU is idle "
      "for " +
      Milliseconds(work.idle_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step meanwhile: " + LongestOps(m, work.ops) + " per step" +
      (updates ? ", in the optimizer's step" : "") + ".";
  if (work.downloads_ns > 0) {
    finding.evidence += " Copies of such tensors block it for another " +
                        Milliseconds(work.downloads_ns * 1e-6) + ".";
  }
  const bool uploads = work.uploads_ns * 1e-6 >= MinReportableGainMs(m);
  if (uploads) {
    finding.evidence += " Copies of the results to the device block it for " +
                        Milliseconds(work.uploads_ns * 1e-6) + ".";
  }
  finding.where =
      CallSites(m.trace).Place(m.steps.thread, op.begin_ns, work.longest);
  finding.examples.push_back(
      {m.steps.windows[SteadyStepAt(m.steps, op.begin_ns)].number, op.begin_ns,
       op.end_ns, OpWithShapes(m.trace, work.longest)});
  finding.assumption =
      "at best: the device computes this in no time, and nothing is copied";
  if (updates) {
    finding.fix_python = kStateOnDevice;
    finding.fix_cpp = kStateOnDeviceInCpp;
    finding.wrong_if = "the device's memory does not hold the state";
  } else if (uploads) {
    finding.fix_python =
        "compute it on the device: upload what it reads first, or keep that "
        "there (features = features.to(\"cuda\") once, then features[ids]); "
        "where the device's memory does not suffice, compute it in the "
        "loader's workers, and upload from pinned memory";
    finding.fix_cpp =
        "compute it on the device: upload what it reads first, or keep that "
        "there";
    finding.wrong_if =
        "the tensors that it reads take much more memory than the result";
  } else {
    finding.fix_python =
        "compute it on the device, and download the result: "
        "logits.argmax(1).cpu() in place of logits.cpu().argmax(1); or do it "
        "every N steps";
    finding.fix_cpp = "compute it on the device, and download the result";
    finding.wrong_if = "the host needs the whole tensors in each step";
  }
  // If the host were never late, no gaps would remain. If most of the idle time
  // is in these ops, assume that they also cause the other gaps.
  const double idle_ns =
      2 * work.idle_ns > work.all_idle_ns ? work.all_idle_ns : work.idle_ns;
  // The device's own work remains.
  const double most_ns = m.step_ns() - m.MeanNs(Cause::kCompute);
  return FireBound(
      std::move(finding),
      std::min(idle_ns + work.downloads_ns + work.uploads_ns, most_ns));
}

constexpr Rule kRules[] = {
    {.id = "host-compute",
     .question = "Does the host compute with tensors in its own memory while "
                 "the GPU waits?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp, Kind::kKernel, Kind::kRuntimeCall},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kBlockingCopy,
                Cause::kCopy},
     .check = &CheckHostCompute,
     .reference = "PyTorch documentation, torch.optim, constructing it: "
                  "https://docs.pytorch.org/docs/stable/optim.html",
     .detect = "in two thirds of the steps, ops of 100 us and more on the "
               "training thread call nothing of the device, and the GPU is "
               "idle meanwhile for 3 % of the step. Or optimizer's steps "
               "that call no op but copies leave it idle for as long",
     .avoid = "the ops belong to loading, or the GPU has work meanwhile",
     .fix_cpp = "the optimizer's state, or the metric, on the device",
     .fix_python = "the optimizer's state, or the metric, on the device",
     .change = "computed on the device"}};

}  // namespace
}  // namespace host_compute_rules

extern const std::span<const Rule> kHostCompute = host_compute_rules::kRules;

}  // namespace stepscope
