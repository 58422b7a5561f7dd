// Is a debugging aid still on?
// Sources: PyTorch Performance Tuning Guide, "Disable debugging APIs"; "17
// tips", number 13. Anomaly mode checks every gradient for NaN and waits for
// the result. torch.distributions compares all arguments and samples with their
// bounds, and reads the result ("validate_args"). CUDA_LAUNCH_BLOCKING waits
// after every launch. emit_nvtx names every op for a profiler.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "evidence/recording_load.h"
#include "ops/contains.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace debugging_rules {
namespace {

// The share of the steady steps, and of their launches, that must show the aid.
constexpr double kNearlyAllSteps = 0.9;
constexpr double kMostLaunches = 0.9;
constexpr int64_t kFewLaunches = 50;  // with fewer, launches say nothing
// A shorter kernel may end during its launch call even without blocking.
constexpr double kLongNs = 10'000;
constexpr double kMostNodes = 0.5;  // of the backward nodes that are checked
// This share of the ops of one kind runs undisturbed. The cost of recording an
// op is estimated with the same share.
constexpr double kFastest = 0.1;

// A debugging aid that is on, and the change that removes its cost.
struct Aid {
  std::string what, fix_cpp, fix_python;
  std::vector<Example> examples = {};
  std::vector<Setting> settings = {};
  Edit edit = {};
  double blocks_ns = 0;  // per step
  double bound_ns = 0;   // per step
  // True if the aid slows down more than the edit changes.
  bool only_bound = false;
  std::string assumption = "this run is not for debugging";
};

bool InMostSteps(const AnalysisContext& m, const std::vector<double>& share,
                 double least) {
  double count = 0;
  for (size_t i : m.steps.steady) count += share[i] >= least;
  return count >= kNearlyAllSteps * static_cast<double>(m.steps.steady.size());
}

// Removes the checks, and all calls and kernels that run inside them, with
// `aid.edit`.
void DropChecks(const AnalysisContext& m, const std::vector<RowId>& checks,
                Aid& aid) {
  std::vector<bool> below(m.trace.ops().size());
  for (RowId row : checks) below[row] = true;
  for (RowId row = 0; row < below.size(); ++row) {
    const RowId parent = m.trace.ops()[row].parent;
    if (parent != kNone && below[parent]) below[row] = true;
  }
  for (RowId row : checks) {
    const Op& op = m.trace.ops()[row];
    aid.edit.cuts.push_back(
        {.thread = op.thread, .span = {op.begin_ns, op.end_ns}, .keep_ns = 0});
  }
  for (RowId row = 0; row < m.trace.runtime_calls().size(); ++row) {
    const RuntimeCall& call = m.trace.runtime_calls()[row];
    if (call.op != kNone && below[call.op]) aid.edit.no_wait.push_back(row);
  }
  for (const KernelUse& use : m.kernels.uses) {
    const RowId op = m.trace.kernels()[use.kernel].op;
    if (op != kNone && below[op]) aid.edit.scales.push_back(Scaled(use, 0));
  }
}

// Returns the least that remains of a step of a CPU-only run without anomaly
// mode, in ns. It counts ops that compute without making an autograd node, at
// the pace of the fastest of their kind. Ops that make a node also record a
// stack trace in their time. Everything else may be stack traces, or what their
// memory costs other ops.
double LeftWithoutTraces(const AnalysisContext& m,
                         const std::vector<RowId>& checks) {
  std::vector<bool> below(m.trace.ops().size());
  for (RowId row : checks) below[row] = true;
  std::map<std::pair<NameId, RowId>, std::vector<double>> kinds;
  for (RowId row = 0; row < below.size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (op.parent != kNone && below[op.parent]) below[row] = true;
    if (below[row] || op.kind != OpKind::kOperator || op.sequence >= 0 ||
        !m.tree.computes(row) || m.tree.traits(row).bookkeeping ||
        (op.parent != kNone && m.trace.ops()[op.parent].sequence < 0 &&
         m.tree.computes(op.parent)) ||
        !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    kinds[{op.name, op.inputs}].push_back(
        static_cast<double>(op.end_ns - op.begin_ns));
  }
  double ns = 0;
  for (auto& [kind, times] : kinds) {
    const double count = static_cast<double>(times.size());
    const auto fast =
        times.begin() + static_cast<std::ptrdiff_t>(kFastest * (count - 1));
    std::ranges::nth_element(times, fast);
    ns += *fast * count;
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

// Returns the most that anomaly mode costs per step.
double BoundOfAnomalyMode(const AnalysisContext& m,
                          const std::vector<RowId>& checks, const Aid& aid) {
  if (!m.has_gpu) {
    return std::max(aid.blocks_ns,
                    m.gain_step_ms() * 1e6 - LeftWithoutTraces(m, checks));
  }
  double ns = m.MeanNs(Cause::kDispatch) + m.MeanNs(Cause::kHostCode) +
              m.MeanNs(Cause::kSync) + m.MeanNs(Cause::kBlockingCopy);
  for (const ActivityScale& scale : aid.edit.scales) {
    const Kernel& kernel = m.trace.kernels()[scale.activity.row];
    ns +=
        static_cast<double>(kernel.end_ns - kernel.begin_ns) / m.kernels.steps;
  }
  return ns;
}

bool FindAnomalyMode(const AnalysisContext& m, Aid& aid) {
  std::vector<double> nodes(m.steps.windows.size() + 1);
  std::vector<double> checked(m.steps.windows.size() + 1);
  for (const Op& op : m.trace.ops()) {
    if (m.trace.name(op.name).starts_with(
            "autograd::engine::evaluate_function")) {
      nodes[SteadyStepAt(m.steps, op.begin_ns)] += 1;
    }
  }
  const std::vector<RowId> checks = FindNanChecks(m.trace);
  for (RowId row : checks) {
    const Op& op = m.trace.ops()[row];
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    // Count only isnan, because a check of one node calls several ops.
    if (m.trace.name(op.name) == "aten::isnan") checked[step] += 1;
    if (step < m.steps.windows.size()) {
      aid.blocks_ns += static_cast<double>(op.end_ns - op.begin_ns);
      if (aid.examples.size() < 3) {
        aid.examples.push_back(
            {m.steps.windows[step].number, op.begin_ns, op.end_ns,
             std::string(m.trace.name(op.name)) + " after a backward node"});
      }
    }
  }
  aid.blocks_ns /= static_cast<double>(m.steps.steady.size());
  std::vector<double> share(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    share[i] = nodes[i] > 0 ? checked[i] / nodes[i] : 0;
  }
  const bool recorded = RecordedAnomalyMode(m.trace).value_or(false);
  // A setting that was recorded as off does not count: the program may turn it
  // on for the passes alone (with detect_anomaly()).
  if (!recorded && !InMostSteps(m, share, kMostNodes)) return false;
  aid.what =
      "Anomaly detection is on: autograd checks the gradients of every "
      "backward node for NaN";
  if (m.has_gpu) aid.what += ", and the host waits for the result";
  aid.fix_cpp = "torch::autograd::AnomalyMode::set_enabled(false)";
  aid.fix_python = "torch.autograd.set_detect_anomaly(False)";
  aid.what += ", and every node stores a stack trace";
  if (m.has_gpu) {
    DropChecks(m, checks, aid);
  } else {
    aid.edit.drop_anomaly = true;
  }
  if (recorded) return true;
  aid.only_bound = true;
  aid.bound_ns = BoundOfAnomalyMode(m, checks, aid);
  aid.settings.push_back({"anomaly_mode", false});
  aid.assumption =
      "at best: only the computing of ops other than the checks remains, " +
      std::string(m.has_gpu
                      ? "and the device never waits for the host"
                      : "not counting ops that make autograd nodes, and each "
                        "op is as fast as the fastest of its kind") +
      "; stack traces are not recorded, and slow down all other ops";
  return true;
}

// True for ops that compare a tensor with a bound, or combine such results.
bool Compares(std::string_view name) {
  return IsAnyOf(name, {"aten::__and__", "aten::__or__", "aten::all",
                        "aten::bitwise_and", "aten::eq", "aten::ge", "aten::gt",
                        "aten::le", "aten::lt", "aten::ne"});
}

constexpr std::string_view kReadsResult = "aten::is_nonzero";

// Finds what torch.distributions does with validate_args: comparisons, then
// aten::_is_all_true and, with aten::is_nonzero, a read of its result.
bool FindArgumentChecks(const AnalysisContext& m, Aid& aid) {
  if (m.steps.thread == kNone) return false;
  std::vector<RowId> outermost, checks;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent == kNone && (!m.tree.traits(row).bookkeeping ||
                               m.trace.name(op.name) == kReadsResult)) {
      outermost.push_back(row);
    }
  }
  const auto name_of = [&](size_t i) {
    return i < outermost.size() ? m.trace.name(m.trace.ops()[outermost[i]].name)
                                : std::string_view();
  };
  std::vector<double> by_step(m.steps.windows.size() + 1);
  double count = 0;
  for (size_t i = 0; i < outermost.size(); ++i) {
    if (name_of(i) != "aten::_is_all_true") continue;
    const size_t step =
        SteadyStepAt(m.steps, m.trace.ops()[outermost[i]].begin_ns);
    if (step == m.steps.windows.size()) continue;
    const size_t last = i + 1;
    if (name_of(last) != kReadsResult) continue;
    size_t first = i;
    while (first > 0 && Compares(name_of(first - 1))) --first;
    checks.insert(checks.end(),
                  outermost.begin() + static_cast<std::ptrdiff_t>(first),
                  outermost.begin() + static_cast<std::ptrdiff_t>(last + 1));
    const Op& begin = m.trace.ops()[outermost[first]];
    const Op& end = m.trace.ops()[outermost[last]];
    aid.blocks_ns += static_cast<double>(end.end_ns - begin.begin_ns);
    by_step[step] += 1;
    ++count;
    if (aid.examples.size() < 3) {
      aid.examples.push_back({m.steps.windows[step].number, begin.begin_ns,
                              end.end_ns, "a check of arguments"});
    }
  }
  if (!InMostSteps(m, by_step, 1)) return false;
  const double steps = static_cast<double>(m.steps.steady.size());
  aid.blocks_ns /= steps;
  aid.bound_ns = aid.blocks_ns;
  aid.what = "torch.distributions checks arguments and samples, " +
             MeanCount(count / steps, "time") + " per step";
  if (m.has_gpu) {
    aid.what += ", and the host waits for each result";
    DropChecks(m, checks, aid);
  } else {
    aid.only_bound = true;
  }
  aid.fix_python =
      "torch.distributions.Distribution.set_default_validate_args(False), once "
      "the model is known to be right (pyro.enable_validation(False); python "
      "-O)";
  aid.fix_cpp = aid.fix_python;
  aid.assumption = "at best: nothing else than the checks takes this time";
  return true;
}

bool FindBlockingLaunches(const AnalysisContext& m, Aid& aid) {
  std::vector<double> launches(m.steps.windows.size() + 1);
  std::vector<double> blocking(m.steps.windows.size() + 1);
  int64_t count = 0;
  for (const KernelUse& use : m.kernels.uses) {
    const Kernel& kernel = m.trace.kernels()[use.kernel];
    // Kernels of a CUDA graph have no launches of their own.
    if (kernel.call == kNone || kernel.graph != 0 || use.ns < kLongNs) {
      continue;
    }
    const RuntimeCall& call = m.trace.runtime_calls()[kernel.call];
    ++count;
    launches[use.step] += 1;
    // Without blocking, a launch returns before its kernel ends.
    if (call.end_ns < kernel.end_ns) continue;
    blocking[use.step] += 1;
    aid.edit.no_wait.push_back(kernel.call);
    aid.bound_ns +=
        std::min(use.ns, static_cast<double>(call.end_ns - call.begin_ns));
    if (aid.examples.size() < 3) {
      aid.examples.push_back(
          {m.steps.windows[use.step].number, call.begin_ns, call.end_ns,
           std::string(m.trace.name(call.name)) + " returns after its kernel"});
    }
  }
  aid.bound_ns /= std::max(1.0, m.kernels.steps);
  aid.blocks_ns = aid.bound_ns;
  // Without blocking, the device still has as much to do.
  aid.bound_ns =
      std::min(aid.bound_ns, std::max(0.0, m.step_ns() - DeviceBusyNs(m)));
  if (count < kFewLaunches) return false;
  std::vector<double> share(launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    share[i] = launches[i] > 0 ? blocking[i] / launches[i] : 0;
  }
  if (!InMostSteps(m, share, kMostLaunches)) return false;
  aid.what =
      "Launches return only after their kernels have ended "
      "(CUDA_LAUNCH_BLOCKING), so the GPU never has work queued";
  aid.fix_cpp = "unset CUDA_LAUNCH_BLOCKING (AMD_SERIALIZE_KERNEL on ROCm)";
  aid.fix_python = aid.fix_cpp;
  return true;
}

bool FindEmitNvtx(const AnalysisContext& m, Aid& aid) {
  std::vector<double> ranges(m.steps.windows.size() + 1);
  for (const Range& range : m.trace.ranges()) {
    const std::string_view name = m.trace.name(range.name);
    if (range.kind != RangeKind::kNvtx ||
        name.find("seq = ") == std::string_view::npos) {
      continue;
    }
    ranges[SteadyStepAt(m.steps, range.begin_ns)] += 1;
    if (aid.examples.size() < 3) {
      aid.examples.push_back(
          {-1, range.begin_ns, range.end_ns, std::string(name)});
    }
  }
  if (!InMostSteps(m, ranges, 1)) return false;
  aid.what = "emit_nvtx is on: autograd pushes an NVTX range for every op";
  aid.fix_cpp = "use torch.autograd.profiler.emit_nvtx() only under a profiler";
  aid.fix_python = aid.fix_cpp;
  return true;
}

Found FoundOf(Aid aid) {
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.examples = std::move(aid.examples);
  finding.evidence = aid.what + ".";
  if (aid.blocks_ns > 0) {
    finding.evidence +=
        (aid.only_bound ? " The checks take " : " This blocks the host for ") +
        Milliseconds(aid.blocks_ns * 1e-6) + " per step.";
  }
  finding.assumption = aid.assumption;
  finding.settings = std::move(aid.settings);
  finding.fix_cpp = aid.fix_cpp;
  finding.fix_python = aid.fix_python;
  finding.wrong_if = "this run is for debugging";
  Found found{.finding = std::move(finding), .bound_ns = aid.bound_ns};
  if (!aid.only_bound) found.alternatives = {{std::move(aid.edit)}};
  return found;
}

Verdict CheckDebugApi(const AnalysisContext& m) {
  Verdict verdict;
  for (bool (*find)(const AnalysisContext&, Aid&) :
       {&FindAnomalyMode, &FindBlockingLaunches, &FindEmitNvtx}) {
    Aid aid;
    if (find(m, aid)) verdict.found.push_back(FoundOf(std::move(aid)));
  }
  return verdict;
}

Verdict CheckArguments(const AnalysisContext& m) {
  Aid aid;
  if (!FindArgumentChecks(m, aid)) return Clean();
  return Fire(FoundOf(std::move(aid)));
}

// --- deterministic-fill

// Returns the ops that fill memory right after ops that only allocate it.
std::vector<ShortenedOp> FindFills(const AnalysisContext& m,
                                   std::set<size_t>& in) {
  std::vector<ShortenedOp> fills;
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row : m.tree.named("aten::fill_")) {
    const Op& op = ops[row];
    if (op.parent == kNone) continue;
    const std::string_view around = m.trace.name(ops[op.parent].name);
    if (!around.starts_with("aten::empty") &&
        !around.starts_with("aten::resize") && around != "aten::new_empty") {
      continue;
    }
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step == m.steps.windows.size()) continue;
    fills.push_back({row, 0});
    in.insert(step);
  }
  return fills;
}

Verdict CheckDeterministicFill(const AnalysisContext& m) {
  std::set<size_t> in;
  std::vector<ShortenedOp> fills = FindFills(m, in);
  if (fills.empty() || !AreMostSteps(m.steps, in.size())) return Clean();
  const RowId first = fills.front().op;
  const double count = static_cast<double>(fills.size()) /
                       static_cast<double>(m.steps.steady.size());
  ShortenedOps all =
      ShortenOps(m, std::move(fills), "memory that is not filled");
  Finding finding =
      FindingAbout(m, first, first, "filling memory that was just allocated");
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "Memory is filled right after it is allocated, " +
      MeanCount(count, "time") +
      " per step: torch.use_deterministic_algorithms(True) does so, to make "
      "reads of uninitialised memory repeatable. This takes " +
      Milliseconds(all.ns * 1e-6) + " per step. Deterministic algorithms " +
      "themselves cost time as well.";
  finding.assumption = "only the fills disappear";
  finding.fix_python =
      "torch.utils.deterministic.fill_uninitialized_memory = False; or "
      "torch.use_deterministic_algorithms(False), where runs need not be "
      "repeatable";
  finding.fix_cpp =
      "at::globalContext().setDeterministicFillUninitializedMemory(false)";
  finding.wrong_if = "reads of uninitialised memory are being searched for";
  return Fire(std::move(finding), std::move(all.edit), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "deterministic-fill",
     .question = "Is memory filled right after it is allocated?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckDeterministicFill,
     .reference = "PyTorch documentation, torch.utils.deterministic: "
                  "https://docs.pytorch.org/docs/stable/deterministic.html",
     .detect = "in two thirds of the steps, aten::fill_ runs inside ops that "
               "only allocate (aten::empty and similar ones), for 1 % of the "
               "step",
     .avoid = "the program fills a tensor itself (torch.full, zeros): such "
              "fills follow the allocation",
     .fix_cpp = "setDeterministicFillUninitializedMemory(false)",
     .fix_python =
         "torch.utils.deterministic.fill_uninitialized_memory = False",
     .change = "memory that is not filled"},
    {.id = "argument-checks",
     .question = "Does torch.distributions check arguments in each step?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kHostCode, Cause::kSync,
                Cause::kBlockingCopy},
     .check = &CheckArguments,
     .reference = "PyTorch documentation, torch.distributions: "
                  "Distribution.set_default_validate_args: "
                  "https://docs.pytorch.org/docs/stable/distributions.html",
     .detect = "in 90 % of the steady steps, comparisons are followed by "
               "aten::_is_all_true, with which only torch.distributions checks "
               "arguments and samples",
     .avoid = "the checks take less than 1 % of the step",
     .fix_cpp = "LibTorch has no distributions",
     .fix_python = "Distribution.set_default_validate_args(False)",
     .change = "no checks of arguments"},
    {.id = "debug-api-on",
     .question = "Is anomaly detection, CUDA_LAUNCH_BLOCKING or emit_nvtx "
                 "still on?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kCompute, Cause::kHostCode,
                Cause::kSync},
     .check = &CheckDebugApi,
     .reference = "PyTorch Performance Tuning Guide: Disable debugging APIs",
     .detect = "in 90 % of the steady steps, gradients are checked for NaN "
               "after half of the backward nodes, 90 % of the launches return "
               "after their kernels have ended, or NVTX ranges contain "
               "\"seq = \"",
     .avoid = "only a single step is debugged, or the program itself checks "
              "the loss for NaN",
     .fix_cpp = "AnomalyMode::set_enabled(false); unset CUDA_LAUNCH_BLOCKING",
     .fix_python = "set_detect_anomaly(False); unset CUDA_LAUNCH_BLOCKING",
     .change = "debugging aids off"}};

}  // namespace
}  // namespace debugging_rules

extern const std::span<const Rule> kDebugging = debugging_rules::kRules;

}  // namespace stepscope
