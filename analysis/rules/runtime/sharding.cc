// Do the collectives of sharded parameters overlap with computing? Are frozen
// parameters sharded?
// Source: PyTorch documentation, "Getting Started with Fully Sharded Data
// Parallel (FSDP2)": prefetching and reshard_after_forward. 3 % of the step is
// the lowest share that XProf calls moderate.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/collectives/collective_evidence.h"
#include "evidence/collectives/hideable_shards.h"
#include "evidence/device_memory_use.h"
#include "evidence/gradient_passes.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace sharding_rules {
namespace {

constexpr double kExposedShare = 0.03;
// If backward has at least this share of the forward gathers, parameters were
// freed in between.
constexpr double kGatheredAgain = 0.5;
constexpr double kMostly = 0.9;  // our own choice
// With fewer gathers per forward pass, the whole model is one unit.
constexpr double kLeastUnits = 2;

// Returns in how many of the steady steps collectives that `counts` accepts are
// exposed for at least `ns`.
size_t StepsWith(const AnalysisContext& m,
                 const std::function<bool(const Collective&)>& counts,
                 double ns) {
  std::vector<double> exposed(m.steps.windows.size());
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep && counts(one)) {
      exposed[one.step] += static_cast<double>(one.exposed_ns);
    }
  }
  return static_cast<size_t>(std::ranges::count_if(
      m.steps.steady, [&](size_t i) { return exposed[i] >= ns; }));
}

CollectiveTotals Gathers(const AnalysisContext& m, bool in_backward) {
  return TotalsOf(m.collectives, m.steps, [&](const Collective& one) {
    return one.kind == CollectiveKind::kAllGather &&
           one.in_backward == in_backward;
  });
}

// True if the whole model is one unit, so that no layer can compute before all
// parameters are there. `forward`: the gathers of the forward pass.
bool IsOneUnit(const AnalysisContext& m, const CollectiveTotals& forward) {
  return forward.count > 0 && forward.count < kLeastUnits &&
         std::ranges::all_of(m.collectives, [](const Collective& one) {
           return !IsOfShards(one) || one.exposed_ns > 0;
         });
}

// Returns the time per step in which any collective of shards runs.
double RunsNs(const AnalysisContext& m) {
  std::vector<Span> spans;
  for (const Collective& one : m.collectives) {
    if (one.step != kNoStep && IsOfShards(one) &&
        std::ranges::binary_search(m.steps.steady, one.step)) {
      spans.push_back(one.moved);
    }
  }
  return static_cast<double>(Length(Merge(std::move(spans)))) /
         static_cast<double>(m.steps.steady.size());
}

Verdict CheckSharding(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1) return Clean();
  if (m.collectives.empty()) return AnswerWithoutCollectives(m);
  const CollectiveTotals all = TotalsOf(m.collectives, m.steps, IsOfShards);
  const double limit = kExposedShare * m.step_ns();
  if (all.exposed_ns < limit) return Clean();
  const CollectiveTotals forward = Gathers(m, /*in_backward=*/false);
  const bool one_unit = IsOneUnit(m, forward);
  // The collectives of a single unit would have others beside them if it were
  // divided.
  const HideableShards hideable(m);
  const std::function<bool(const Collective&)> counts =
      [&](const Collective& one) {
        return one_unit ? IsOfShards(one) : hideable(one);
      };
  const double exposed_ns = TotalsOf(m.collectives, m.steps, counts).exposed_ns;
  // Sequence parallelism gathers and scatters activations in the same way. Only
  // names tell the two apart. Searching names is slow, so it comes last.
  if (exposed_ns < limit ||
      !AreMostSteps(m.steps, StepsWith(m, counts, limit)) ||
      !ShardsParameters(m.trace)) {
    return Clean();
  }
  const CollectiveTotals backward = Gathers(m, /*in_backward=*/true);
  const double count = forward.count + backward.count;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = Count(std::llround(count), "all-gather") + " and " +
                     Count(std::llround(all.count - count), "reduce-scatter") +
                     " of parameter shards per step take " +
                     Milliseconds(all.moved_ns * 1e-6) +
                     (m.has_gpu ? "; the GPU does not compute during "
                                : "; the training thread waits for them for ") +
                     Milliseconds(all.exposed_ns * 1e-6) + " of that (" +
                     Percent(all.exposed_ns / m.step_ns()) + " of the step).";
  const bool again =
      forward.count > 0 && backward.count >= kGatheredAgain * forward.count;
  if (again) {
    finding.evidence +=
        " Parameters are freed after the forward pass and gathered again in "
        "backward: " +
        Count(std::llround(backward.count), "all-gather") + " of " +
        Milliseconds(backward.moved_ns * 1e-6) + ".";
  }
  if (exposed_ns < kMostly * all.exposed_ns) {
    finding.evidence +=
        " In " + Milliseconds(exposed_ns * 1e-6) +
        " of this time, a layer could compute: the rest is before the first "
        "product of the step or after the last.";
  }
  Illustrate(m, IsOfShards, finding);
  finding.assumption =
      "at best: fetching and reducing shards overlaps with computing, and only "
      "the optimizer waits for them";
  finding.fix_cpp =
      "issue the all-gather of the next layer before this one computes";
  finding.fix_python =
      "fully_shard: set_modules_to_forward_prefetch() and "
      "set_modules_to_backward_prefetch(), larger modules per fully_shard "
      "call; FSDP1: forward_prefetch=True, BackwardPrefetch.BACKWARD_PRE";
  if (again) {
    finding.fix_python +=
        "; reshard_after_forward=False (SHARD_GRAD_OP) where memory allows";
  }
  finding.wrong_if =
      "the other ranks arrive late, so that this rank waits for them";
  const double most_ns = HidingBoundNs(m, exposed_ns, finding);
  // Nothing can be fetched ahead, and no replay of this order shows the gain.
  if (one_unit) {
    finding.evidence +=
        " All parameters are gathered at once, so that no layer computes "
        "meanwhile.";
    finding.fix_python =
        "shard each block by itself, for block in model.layers: "
        "fully_shard(block), and then the model; FSDP1: an auto_wrap_policy "
        "for the blocks";
    finding.fix_cpp = "gather the parameters of each block by themselves";
    return FireBound(std::move(finding), most_ns);
  }
  // What already runs all the time cannot begin earlier.
  const double runs_ns = RunsNs(m);
  if (runs_ns >= kMostly * m.step_ns()) {
    finding.evidence += " They run during " + Percent(runs_ns / m.step_ns()) +
                        " of the step, so gathering ahead gains little: the "
                        "links are too slow for what they move, or other ranks "
                        "arrive late.";
    finding.assumption = "at best: they take no longer than computing does";
    finding.fix_cpp = "move fewer bytes, and check the links between the hosts";
    finding.fix_python =
        "check the links (NCCL_DEBUG=INFO prints NET/Socket where InfiniBand "
        "is not used); move less: shard inside a host only (HSDP, a "
        "two-dimensional mesh for fully_shard), "
        "MixedPrecisionPolicy(reduce_dtype=torch.bfloat16), "
        "set_requires_gradient_sync(False) while accumulating";
    if (again) {
      finding.fix_python += ", reshard_after_forward=False where memory allows";
    }
    return FireBound(std::move(finding), most_ns);
  }
  Edit edit;
  for (const Collective& one : m.collectives) {
    if (one.kernel != kNone && one.step != kNoStep && hideable(one)) {
      edit.overlapped.push_back(KernelOf(one));
    }
  }
  // The best case uses the same edit. How much can be fetched ahead is unknown,
  // so the likely range starts at no gain.
  Found found{.finding = std::move(finding),
              .alternatives = {{edit}},
              .bound_ns = most_ns,
              .best_case = edit};
  return Fire(std::move(found));
}

// --- frozen-shards

// Gradients have the sizes of their parameters, in the same type or in float32.
// So if each gather moves more than this many times the bytes that are
// scattered, most of what is gathered has no gradient.
constexpr double kMostlyFrozen = 8;
constexpr double kNearlyAll = 0.99;  // said in words
// A unit is gathered once for each time that its gradients are reduced. If
// gathers are more frequent, several forward passes share a reduction
// (no_sync), or some are without gradients.
constexpr double kGathersPerReduction = 2;

Verdict CheckFrozenShards(const AnalysisContext& m) {
  if (m.trace.run().world_size == 1 || m.collectives.empty()) return Clean();
  const CollectiveTotals scattered =
      TotalsOf(m.collectives, m.steps, [](const Collective& one) {
        return one.kind == CollectiveKind::kReduceScatter;
      });
  const CollectiveTotals forward = Gathers(m, /*in_backward=*/false);
  if (!scattered.all_sizes_known || !forward.all_sizes_known ||
      scattered.bytes <= 0 ||
      forward.count > kGathersPerReduction * scattered.count ||
      forward.bytes < kMostlyFrozen * scattered.bytes ||
      !ShardsParameters(m.trace)) {
    return Clean();
  }
  const double frozen = 1 - scattered.bytes / forward.bytes;
  double memory = -1;
  if (m.ledger) memory = MeasureDeviceMemory(m).usable();
  if (memory > 0 && forward.bytes > memory) return Clean();
  const auto gathers = [](const Collective& one) {
    return one.kind == CollectiveKind::kAllGather;
  };
  const CollectiveTotals all = TotalsOf(m.collectives, m.steps, gathers);
  Edit edit;
  for (const Collective& one : m.collectives) {
    if (one.kernel == kNone || one.step == kNoStep || !gathers(one)) continue;
    edit.scales.push_back({KernelOf(one), 1 - frozen});
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Each step gathers parameters of " + Bytes(forward.bytes) +
                     " in the forward pass, but reduces gradients of only " +
                     Bytes(scattered.bytes) + ": " + Percent(frozen) +
                     " of what is sharded is not trained. All-gathers take " +
                     Milliseconds(all.moved_ns * 1e-6) +
                     " per step, of which " +
                     Milliseconds(all.exposed_ns * 1e-6) +
                     (m.has_gpu ? " run while the GPU does not compute."
                                : " are spent waiting.");
  Illustrate(m, gathers, finding);
  finding.assumption =
      "each device holds the " + Bytes(frozen * forward.bytes) +
      " that are not trained, and only the others are gathered";
  finding.fix_python =
      "keep the frozen parameters whole on each device, and shard only what "
      "is trained: fully_shard(..., ignored_params=frozen), or DDP, which "
      "leaves out parameters with requires_grad=False; quantised to 4 bits, "
      "they take a quarter of the memory";
  finding.fix_cpp =
      "keep the parameters that are not trained whole on each device";
  finding.wrong_if = "they do not fit into the memory beside the activations";
  return Fire(std::move(finding), std::move(edit), frozen * all.exposed_ns);
}

constexpr Rule kRules[] = {
    {.id = "frozen-shards",
     .question = "Are parameters sharded that are not trained?",
     .needs = {},
     .causes = {Cause::kCommunication},
     .check = &CheckFrozenShards,
     .reference = "PyTorch documentation, fully_shard: ignored_params: "
                  "https://docs.pytorch.org/docs/stable/"
                  "distributed.fsdp.fully_shard.html",
     .detect = "in a program that shards its parameters, the forward pass "
               "gathers more than 8 times the bytes of the gradients that are "
               "reduced",
     .avoid = "what is gathered does not fit into 90 % of the device's memory; "
              "sizes of collectives were not recorded; gathers are more "
              "than twice as frequent as reductions, as in accumulation",
     .fix_cpp = "keep frozen parameters whole",
     .fix_python = "fully_shard(..., ignored_params=frozen)",
     .change = "frozen parameters kept whole"},
    {.id = "fsdp-exposed",
     .question = "Does the step wait for shards of parameters or gradients?",
     .needs = {},
     .causes = {Cause::kCommunication},
     .check = &CheckSharding,
     .reference = "PyTorch documentation, FSDP2: prefetching; "
                  "reshard_after_forward",
     .detect = "in two thirds of the steady steps, all-gathers and "
               "reduce-scatters of a program that shards its parameters (FSDP, "
               "DeepSpeed ZeRO 3) run without any computing for at least 3 % "
               "of the step. Gathers before the first product of the step and "
               "reduce-scatters after the last do not count, because nothing "
               "could run beside them, unless the whole model is one unit",
     .avoid = "nothing shows that parameters are sharded: then the "
              "collectives may be of activations (exposed-collective)",
     .fix_cpp = "fetch the next layer's shards before this layer computes",
     .fix_python = "forward and backward prefetch; larger wrap units; "
                   "reshard_after_forward=False where memory allows",
     .change = "parameters gathered ahead"}};

}  // namespace
}  // namespace sharding_rules

extern const std::span<const Rule> kSharding = sharding_rules::kRules;

}  // namespace stepscope
