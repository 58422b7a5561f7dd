// Do the stages of a pipeline wait for each other? Source: Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", section 2.2: with p stages, m micro-batches and v chunks per
// stage, the bubble takes (p-1)/(v m) of the time without it. 3 % of the step
// is the lowest share that XProf calls moderate.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/collectives.h"
#include "words/quantities.h"

namespace stepscope {
namespace pipelines_rules {
namespace {

constexpr double kBubbleShare = 0.03;
// A cause is named if it explains at least this share of the bubble.
constexpr double kExplains = 0.5;

Verdict OneStageOnly(const AnalysisContext& m) {
  const bool sends =
      std::ranges::any_of(m.collectives, [](const Collective& one) {
        return one.kind == CollectiveKind::kPointToPoint;
      });
  return sends ? SkipElsewhere(
                     "needs the traces of all stages: stepscope analyze FOLDER")
               : Clean();
}

// The stage that computes longest, and the mean over the stages.
struct Balance {
  const PipelineStage* longest = nullptr;
  double mean_ms = 0;
};
Balance BalanceOf(const PipelineRow& pipeline) {
  Balance balance;
  for (const PipelineStage& stage : pipeline.stages) {
    balance.mean_ms +=
        stage.busy_ms / static_cast<double>(pipeline.stages.size());
    if (balance.longest == nullptr ||
        stage.busy_ms > balance.longest->busy_ms) {
      balance.longest = &stage;
    }
  }
  return balance;
}

double WaitingMs(const PipelineRow& pipeline) {
  double ms = 0;
  for (const PipelineStage& stage : pipeline.stages) ms += stage.waiting_ms;
  return ms / static_cast<double>(pipeline.stages.size());
}

Verdict CheckPipelines(const RankComparison& ranks) {
  const auto widest = std::ranges::max_element(ranks.pipelines, {}, &WaitingMs);
  if (widest == ranks.pipelines.end() || widest->bubble_frac < kBubbleShare) {
    return Clean();
  }
  const PipelineRow& pipeline = *widest;
  const double waiting = WaitingMs(pipeline);
  const auto stages = static_cast<int64_t>(pipeline.stages.size());
  const Balance balance = BalanceOf(pipeline);
  const double uneven = balance.longest->busy_ms - balance.mean_ms;
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "The " + Count(stages, "stage") +
                     " of the pipeline wait " + Milliseconds(waiting) +
                     " per step (" + Percent(pipeline.bubble_frac) +
                     ") for each other's activations and gradients, with "
                     "nothing else to compute.";
  std::string fix;
  if (pipeline.ideal_frac > 0) {
    finding.evidence +=
        " They run " + Times(pipeline.micro_batches) +
        " micro-batches per step" +
        (pipeline.chunks > 1
             ? " in " + std::to_string(pipeline.chunks) + " chunks per rank"
             : "") +
        ". Stages of equal length would wait for " +
        Percent(pipeline.ideal_frac) + ".";
  }
  if (uneven >= kExplains * waiting) {
    finding.evidence += " Rank " + std::to_string(balance.longest->rank) +
                        " computes for " +
                        Milliseconds(balance.longest->busy_ms) +
                        " per step, the stages on average for " +
                        Milliseconds(balance.mean_ms) + ".";
    fix = "move layers from the stage of rank " +
          std::to_string(balance.longest->rank) +
          " to the others, so that all stages compute equally long";
  }
  // More micro-batches help only to the extent that the schedule causes the
  // bubble.
  if (pipeline.ideal_frac >= kExplains * pipeline.bubble_frac) {
    const double others = static_cast<double>(stages - 1);
    const double slots =
        static_cast<double>(pipeline.chunks) * pipeline.micro_batches;
    fix += (fix.empty() ? "" : "; ") +
           ("run more and smaller micro-batches per step (" +
            Times(2 * pipeline.micro_batches) + " would wait for " +
            Percent(others / (2 * slots + others)) +
            " of a step of equal stages)") +
           ", or an interleaved or zero-bubble schedule";
  }
  if (fix.empty()) {
    fix =
        "post sends and receives before they are needed, and check how fast "
        "the links between the stages are";
  }
  finding.where = "ranks ";
  for (const PipelineStage& stage : pipeline.stages) {
    finding.where += (&stage == pipeline.stages.data() ? "" : ", ") +
                     std::to_string(stage.rank);
  }
  finding.assumption = "at best: no stage waits for another";
  finding.fix_cpp = finding.fix_python = fix;
  finding.wrong_if =
      "each stage sends several tensors per micro-batch: then there are fewer "
      "micro-batches than counted";
  // Only a bound, because with most schedules even equal stages wait at both
  // ends of a step.
  return FireBound(std::move(finding), waiting * 1e6);
}

constexpr Rule kRules[] = {
    {.id = "pipeline-bubble",
     .question = "Do the stages of a pipeline wait for each other?",
     .needs_steps = false,
     .needs = {},
     .causes = {Cause::kCommunication},
     .check = &OneStageOnly,
     .reference = "Narayanan et al., Efficient Large-Scale Language Model "
                  "Training on GPU Clusters Using Megatron-LM, section 2.2",
     .detect = "messages between the stages take at least 3 % of the step "
               "while nothing computes (the lowest share that XProf calls "
               "moderate), mean over the stages. Uneven stages, or the number "
               "of micro-batches, are named if they explain half of that",
     .avoid = "not all stages were recorded. Micro-batches are counted by the "
              "messages that a stage receives; where stages disagree, none "
              "are reported",
     .fix_cpp = "more micro-batches; an interleaved schedule; equal stages",
     .fix_python = "more micro-batches; ScheduleInterleaved1F1B or "
                   "ScheduleInterleavedZeroBubble of "
                   "torch.distributed.pipelining; equal stages",
     .check_ranks = &CheckPipelines,
     .needs_shared_collectives = false}};

}  // namespace
}  // namespace pipelines_rules

extern const std::span<const Rule> kPipelines = pipelines_rules::kRules;

}  // namespace stepscope
