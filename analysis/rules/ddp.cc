// Does DistributedDataParallel do work that other settings would avoid?
// Sources: PyTorch Performance Tuning Guide, distributed training: skip the
// all-reduce while accumulating; match the order of construction and execution
// with find_unused_parameters.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/collectives/collective_evidence.h"
#include "evidence/gradient_passes.h"
#include "evidence/host_spans.h"
#include "evidence/program/op_pace.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace ddp_rules {
namespace {

constexpr double kTooManyBytes = 1.5;  // of the gradients, per optimizer step
// Passes of the same model reduce equal bytes, up to this share.
constexpr double kSamePass = 0.1;
constexpr double kLateIssue = 0.5;  // of the backward pass
// If sizes are unknown, two buckets are too few to show that the first bucket
// could have been full earlier.
constexpr size_t kBucketsOfUnknownSize = 3;

// The backward passes of one optimizer step.
using Update = std::vector<const GradientPass*>;

std::vector<Update> UpdatesOf(const std::vector<GradientPass>& passes) {
  std::vector<Update> updates;
  for (const GradientPass& pass : passes) {
    if (updates.empty() || updates.back()[0]->update != pass.update) {
      updates.emplace_back();
    }
    updates.back().push_back(&pass);
  }
  return updates;
}

// True if each of several passes reduces the gradients of the same model.
// Passes of different sizes belong to different models, which all need their
// reduction.
bool ReducesEachPass(const Update& update) {
  if (update.size() < 2) return false;
  const auto size_of = [](const GradientPass& pass) {
    return pass.sizes_known ? static_cast<double>(pass.bytes)
                            : static_cast<double>(pass.collectives.size());
  };
  double sum = 0, most = 0, least = 1e300;
  for (const GradientPass* pass : update) {
    sum += size_of(*pass);
    most = std::max(most, size_of(*pass));
    least = std::min(least, size_of(*pass));
  }
  return sum >= kTooManyBytes * most && least >= (1 - kSamePass) * most;
}

// True for runs that reduce in every pass on purpose, because a rank has no
// memory for whole gradients, or is a stage of a pipeline.
bool ShardsParameters(const AnalysisContext& m) {
  return std::ranges::any_of(m.collectives, [](const Collective& one) {
    return one.kind == CollectiveKind::kReduceScatter ||
           one.kind == CollectiveKind::kPointToPoint;
  });
}

// Returns DDP's copies between gradients and buckets, in time order.
std::vector<HostSpan> BucketCopies(const AnalysisContext& m) {
  std::vector<HostSpan> copies =
      SpansNamed(m, "ddp.reducer::copy_bucket_to_grad");
  const std::vector<HostSpan> into =
      SpansNamed(m, "distributed::reducer::mul_out");
  copies.insert(copies.end(), into.begin(), into.end());
  std::ranges::stable_sort(
      copies, {}, [](const HostSpan& one) { return one.span.begin_ns; });
  return copies;
}

// Returns the most that needless reductions cost a CPU-only run besides their
// exposed time, in ns over all steps. Reductions copy gradients into buckets
// and back. They also slow other ops down. Ops that run at the same time lose
// half their pace, because the reduction's threads share the cores. If other
// ranks of this host reduce, any op may be slower than its fastest call
// (SlowedNs()).
double BesideReductionsNs(const AnalysisContext& m,
                          const std::vector<Collective>& needless,
                          double needless_frac) {
  const auto steps = static_cast<double>(m.steps.steady.size());
  std::vector<Span> moved;
  double exposed = 0;
  for (const Collective& one : needless) {
    moved.push_back(one.moved);
    exposed += static_cast<double>(one.exposed_ns);
  }
  const auto all = static_cast<double>(Length(Merge(std::move(moved))));
  const double copying = HostNsPerStep(m, BucketCopies(m));
  const double slowed =
      std::max((all - exposed) / 2, needless_frac * steps * SlowedNs(m));
  return std::max(0.0, slowed) + needless_frac * copying * steps;
}

Verdict CheckNoSync(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1) return Clean();
  if (m.collectives.empty()) return AnswerWithoutCollectives(m);
  if (ShardsParameters(m)) return Clean();
  const std::vector<GradientPass> passes =
      FindGradientPasses(m.trace, m.tree, m.steps, m.collectives);
  const std::vector<Update> updates = UpdatesOf(passes);
  size_t fires = 0, accumulated = 0;
  double exposed = 0, issued = 0;
  Edit edit;
  std::set<size_t> needless;
  std::vector<Span> left_out;  // passes that need not reduce
  std::vector<Collective> dropped;
  for (const Update& update : updates) {
    if (!ReducesEachPass(update)) continue;
    ++fires;
    accumulated = std::max(accumulated, update.size());
    // The reduction of the last pass is needed, because the sums are then
    // complete.
    for (size_t p = 0; p + 1 < update.size(); ++p) {
      // DDP copies gradients back after the last node.
      left_out.push_back(
          {update[p]->backward.begin_ns, update[p + 1]->backward.begin_ns});
      for (size_t i : update[p]->collectives) {
        const Collective& one = m.collectives[i];
        needless.insert(i);
        dropped.push_back(one);
        exposed += one.exposed_ns;
        issued += one.issued.length();
        if (one.kernel == kNone) continue;
        edit.scales.push_back({KernelOf(one), 0});
        if (one.thread != kNone) edit.cuts.push_back({one.thread, one.issued});
      }
    }
  }
  if (fires == 0 || fires < kMostSteps * updates.size()) return Clean();
  // Without reducing, nothing fills buckets either.
  std::vector<HostSpan> copies = BucketCopies(m);
  left_out = Merge(std::move(left_out));
  std::erase_if(copies, [&](const HostSpan& one) {
    return !Covers(left_out, one.span.begin_ns);
  });
  const std::vector<ActivityRef> copied = LaunchedIn(m, copies);
  const double copying =
      m.has_gpu ? HostNsPerStep(m, copies) + DeviceNsPerStep(m, copied) : 0;
  if (copying > 0) edit = Combine(std::move(edit), Without(copies, copied));
  const auto steps = static_cast<double>(m.steps.steady.size());
  exposed /= steps;
  issued /= steps;
  double beside = 0;
  if (!m.has_gpu) {
    const double frac = 1 - 1 / static_cast<double>(accumulated);
    beside = BesideReductionsNs(m, dropped, frac) / steps;
  }
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "Gradients are reduced in each of the " + std::to_string(accumulated) +
      " backward passes of an optimizer step, although only their sum is "
      "used. " +
      Count(std::llround(static_cast<double>(needless.size()) /
                         m.steps.steady.size()),
            "all-reduce") +
      " per step could be left out: " + Milliseconds(exposed * 1e-6) +
      " of their time is exposed, and issuing them takes " +
      Milliseconds(issued * 1e-6) + " of host time." +
      (copying > 0 ? " Copies into and out of buckets take another " +
                         Milliseconds(copying * 1e-6) + "."
                   : "");
  Illustrate(
      m,
      [&](const Collective& one) {
        return needless.contains(
            static_cast<size_t>(&one - m.collectives.data()));
      },
      finding);
  finding.assumption =
      "only the last backward pass of an optimizer step reduces gradients";
  if (beside > 0) {
    finding.assumption +=
        "; at best, ops then run undisturbed: those that run during a "
        "collective become twice as fast, all others as fast as their fastest "
        "recorded call (this and filling buckets is " +
        Milliseconds(beside * 1e-6) + " of the gain)";
  }
  finding.fix_cpp =
      "call ProcessGroup::allreduce only after the last backward pass before "
      "optimizer.step()";
  finding.fix_python =
      "with model.no_sync(): loss.backward()  # in all passes but the last";
  finding.wrong_if = "the passes belong to different models";
  return Fire(std::move(finding), std::move(edit),
              exposed + issued + beside + copying);
}

// Returns when the first half of the pass's parameters had their gradients.
// Counts parameters, not bytes.
int64_t HalfReadyNs(const AnalysisContext& m, const GradientPass& pass) {
  const size_t half = pass.parameters.size() / 2;
  return m.trace.ops()[pass.parameters[half]].end_ns;
}

bool IssuesLate(const AnalysisContext& m, const GradientPass& pass) {
  if (pass.collectives.size() < 2 || pass.parameters.size() < 2) return false;
  const Collective& first = m.collectives[pass.collectives[0]];
  // A first bucket that holds most of the gradients cannot be full any earlier.
  if (pass.sizes_known ? first.bytes > kLateIssue * pass.bytes
                       : pass.collectives.size() < kBucketsOfUnknownSize) {
    return false;
  }
  return first.in_backward &&
         first.issued.begin_ns >
             pass.backward.begin_ns + kLateIssue * pass.backward.length() &&
         first.issued.begin_ns > HalfReadyNs(m, pass);
}

Verdict CheckUnusedSearch(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1) return Clean();
  const std::vector<HostSpan> searches =
      SpansNamed(m, "search_unused_parameters");
  if (searches.empty() && m.collectives.empty()) {
    return AnswerWithoutCollectives(m);
  }
  const auto is_unused_flags = [&](const Collective& one) {
    return !searches.empty() && one.integer && one.in_backward &&
           one.kind == CollectiveKind::kAllReduce;
  };
  const CollectiveTotals flags =
      TotalsOf(m.collectives, m.steps, is_unused_flags);
  const double search = HostNsPerStep(m, searches);
  const std::vector<GradientPass> passes =
      FindGradientPasses(m.trace, m.tree, m.steps, m.collectives);
  const size_t late = static_cast<size_t>(std::ranges::count_if(
      passes, [&](const GradientPass& pass) { return IssuesLate(m, pass); }));
  const double cost = search + flags.exposed_ns + flags.issue_ns;
  const bool searches_cost = cost * 1e-6 >= MinReportableGainMs(m);
  const bool order = late > 0 && late >= kMostSteps * passes.size();
  if (!searches_cost && !order) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  Edit edit;
  double bound = 0;
  if (searches_cost) {
    finding.evidence =
        "DDP searches the graph for unused parameters in every step, which "
        "takes " +
        Milliseconds(search * 1e-6) + " per step";
    if (flags.count > 0) {
      finding.evidence +=
          ". It also all-reduces the flags of used parameters, "
          "of which " +
          Milliseconds(flags.exposed_ns * 1e-6) + " per step is exposed";
    }
    finding.evidence += ".";
    edit = m.has_gpu ? Without(searches, {}) : Edit();
    for (const Collective& one : m.collectives) {
      if (one.kernel == kNone || !is_unused_flags(one)) continue;
      edit.scales.push_back({KernelOf(one), 0});
    }
    bound = cost;
  }
  if (order) {
    const CollectiveTotals gradients =
        TotalsOf(m.collectives, m.steps,
                 [](const Collective& one) { return one.gradient; });
    finding.confidence = Confidence::kStrong;
    finding.evidence +=
        std::string(finding.evidence.empty() ? "" : " ") +
        "DDP sends the first bucket in the second half of the backward pass, "
        "although half of the gradients were ready earlier: the modules are "
        "not registered in the order of execution. " +
        Milliseconds(gradients.exposed_ns * 1e-6) +
        " per step of the gradients' all-reduces is exposed.";
    bound += gradients.exposed_ns;
  }
  finding.assumption = order
                           ? "at best, DDP sends each bucket as soon as it is "
                             "full, and the transfer overlaps with backward"
                           : "all parameters get gradients in every step";
  finding.fix_cpp =
      "register the modules in the order of execution; reduce all parameters "
      "without a search";
  finding.fix_python =
      "DistributedDataParallel(model, find_unused_parameters=False, "
      "static_graph=True); register layers in the order of execution";
  finding.wrong_if =
      "some parameters get no gradient in some steps, so the search is needed "
      "(static_graph=True works if they are the same in every step)";
  // The replay cannot change the order in which buckets are issued.
  if (order) return FireBound(std::move(finding), bound);
  return Fire(std::move(finding), std::move(edit), bound);
}

constexpr Rule kRules[] = {
    {.id = "missing-no-sync",
     .question = "Does every backward pass reduce gradients that are only "
                 "being accumulated?",
     .needs = {},
     .causes = {Cause::kCommunication},
     .check = &CheckNoSync,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "skip unnecessary all-reduce while accumulating",
     .detect = "several backward passes of one optimizer step each reduce the "
               "same bytes, together at least 1.5 times the gradients",
     .avoid = "parameters are sharded (FSDP, ZeRO), the job runs pipeline "
              "stages, or the passes differ in size and so belong to different "
              "models",
     .fix_cpp = "reduce after the last backward pass only",
     .fix_python = "wrap all passes but the last in with model.no_sync():",
     .change = "gradients reduced once per update"},
    {.id = "ddp-unused-search",
     .question = "Does DDP search for unused parameters or send its buckets "
                 "late?",
     .needs = {},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kCommunication},
     .check = &CheckUnusedSearch,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "match the order of layers in construction and execution "
                  "with find_unused_parameters=True",
     .detect = "search_unused_parameters and its all-reduce of flags take 1 % "
               "of the step, or DDP sends the first bucket in the second half "
               "of the backward pass although half of the gradients were ready "
               "before",
     .avoid = "there is a single bucket, or the first bucket holds most of the "
              "gradients and is full only near the end",
     .fix_cpp = "register modules in the order of execution",
     .fix_python = "set find_unused_parameters=False, static_graph=True",
     .change = "no search for unused parameters"}};

}  // namespace
}  // namespace ddp_rules

extern const std::span<const Rule> kDdp = ddp_rules::kRules;

}  // namespace stepscope
