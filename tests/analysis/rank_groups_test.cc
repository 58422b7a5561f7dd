// Tests groups of ranks (what each group is for and how fast it is) and
// pipelines.
#include "ranks/rank_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/rank_digest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "rules/rule_testing.h"
#include "support/program_simulator.h"

namespace stepscope::rank_groups_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParallelismTest, FollowsTheWordsOfTheDescription) {
  for (const auto& [description, parallelism] :
       std::vector<std::pair<std::string, std::string>>{
           {"mesh_tp", "tensor"},
           {"mesh_dp_shard", "sharded data"},
           {"mesh_dp_replicate", "data"},
           {"mesh_dp_shard_cp", "sharded data"},
           {"mesh_pp", "pipeline"},
           {"TENSOR_MODEL_PARALLEL_GROUP", "tensor"},
           {"PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"},
           {"DATA_PARALLEL_GROUP_WITH_CP", "data"},
           {"EXPERT_MODEL_PARALLEL_GROUP", "expert"},
           {"EXPERT_DATA_PARALLEL_GROUP", "data"},
           {"CONTEXT_PARALLEL_GROUP", "context"},
           {"TENSOR_AND_DATA_PARALLEL_GROUP", ""},
           {"MODEL_PARALLEL_GROUP", ""},
           {"default_pg", ""},
           {"undefined", ""},
           {"stamp", ""},
           {"", ""}}) {
    EXPECT_EQ(ParallelismOf(description), parallelism) << description;
  }
}

std::vector<RankDigest> DigestsOf(const std::string& text) {
  std::vector<RankDigest> digests;
  for (const Trace& trace : MustRunProgram(text).ranks) {
    digests.push_back(DigestRank(trace));
  }
  return digests;
}

// Returns the job's report. Checks that digests as bytes give the same report.
Report ReportOf(const std::string& text) {
  const std::vector<RankDigest> digests = DigestsOf(text);
  std::vector<RankDigest> reread;
  for (const RankDigest& digest : digests) {
    auto parsed = ParseDigest(SerializeDigest(digest));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    if (parsed.ok()) reread.push_back(*std::move(parsed));
  }
  Report report = AnalyzeRanks(digests);
  EXPECT_EQ(ToJson(AnalyzeRanks(reread)), ToJson(report));
  return report;
}

// Tensor-parallel pairs, with data-parallel groups across the pairs.
std::string Mesh(const std::string& tp, const std::string& dp,
                 const std::string& planted, const std::string& rate = "") {
  return R"(
gpu A100
cores 16
steps 6 warmup=6
ranks 8 network=100 hosts=2
group tp 0,1 2,3 4,5 6,7 described=)" +
         tp + "\ngroup dp 0,2,4,6 1,3,5,7 described=" + dp + R"(
define layer { op aten::mm 12us grad { kernel gemm 300us } }
define reduce { collective all_reduce 8MB group=tp )" +
         rate + R"( }
step {
)" + planted +
         R"(
  range phase forward { repeat 6 { do layer; do reduce; join } }
  backward { repeat 6 { node MmBackward0 10us { op aten::mm 14us { kernel gemm 600us } } accumulate 5us { op aten::detach 2us; collective all_reduce 25MB group=dp stream=21 } } }
  join
  range optimizer "Optimizer.step#AdamW.step" { op aten::_fused_adamw_ 90us { kernel adam 300us } }
  item
})";
}

const RankGroupRow* GroupOf(const Report& report, std::vector<int32_t> ranks) {
  const auto found =
      std::ranges::find(report.ranks.groups, ranks, &RankGroupRow::ranks);
  return found == report.ranks.groups.end() ? nullptr : &*found;
}

TEST(RankGroupsTest, CollectivesBelongToTheirGroup) {
  const Report report = ReportOf(Mesh("mesh_tp", "mesh_dp", ""));
  ASSERT_EQ(report.ranks.why_not, "");
  EXPECT_EQ(report.ranks.unmatched, 0);
  EXPECT_EQ(report.ranks.groups.size(), 6u);
  // No group has all ranks, so clocks are aligned from group to group.
  EXPECT_LT(report.ranks.clock_residual_us, 2);
  const RankGroupRow* tensor = GroupOf(report, {4, 5});
  const RankGroupRow* data = GroupOf(report, {1, 3, 5, 7});
  ASSERT_NE(tensor, nullptr);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(tensor->parallelism, "tensor");
  EXPECT_EQ(tensor->evidence, "described as mesh_tp");
  EXPECT_EQ(tensor->size, 2);
  EXPECT_EQ(tensor->hosts, 1);
  EXPECT_NEAR(tensor->collectives, 6, 1e-6);
  EXPECT_NEAR(tensor->bytes, 48e6, 1);
  // 8 MB at 100 GB/s plus 25 us of latency.
  EXPECT_NEAR(tensor->gb_per_s, 8e6 / (8e6 / 100 + 25'000), 8);
  EXPECT_GT(tensor->exposed_ms, 0.6);
  EXPECT_EQ(data->parallelism, "data");
  EXPECT_EQ(data->size, 4);
  EXPECT_EQ(data->hosts, 2);
  EXPECT_NEAR(data->collectives, 6, 1e-6);
  EXPECT_NEAR(data->gb_per_s, 1.5 * 25e6 / (1.5 * 25e6 / 100 + 25'000), 8);
  const std::string text = ToText(report, {});
  EXPECT_THAT(text, HasSubstr("tensor (mesh_tp), 4 groups of 2"));
  EXPECT_THAT(text, HasSubstr("data (mesh_dp), 2 groups of 4"));
}

TEST(RankGroupsTest, WithoutADescriptionTheTrafficSaysWhatAGroupServes) {
  const Report report = ReportOf(Mesh("undefined", "undefined", ""));
  const RankGroupRow* tensor = GroupOf(report, {4, 5});
  const RankGroupRow* data = GroupOf(report, {1, 3, 5, 7});
  ASSERT_NE(tensor, nullptr);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(tensor->parallelism, "tensor");
  EXPECT_THAT(tensor->evidence, HasSubstr("not of gradients"));
  EXPECT_EQ(data->parallelism, "data");
  EXPECT_EQ(data->evidence, "all-reduces of gradients");
  EXPECT_THAT(ToText(report, {}), HasSubstr("by its traffic"));
}

TEST(RankGroupsTest, TheSlowestGroupOfAKindIsNamed) {
  const std::string text = Mesh("mesh_tp", "mesh_dp", "");
  // The pair 6, 7 has a slow link.
  std::string slow = text;
  const std::string reduce = "do reduce;";
  slow.replace(slow.find(reduce), reduce.size(),
               "rank 6 { collective all_reduce 8MB group=tp rate=20 }; rank 7 "
               "{ collective all_reduce 8MB group=tp rate=20 }; rank 0 { do "
               "reduce }; rank 1 { do reduce }; rank 2 { do reduce }; rank 3 { "
               "do reduce }; rank 4 { do reduce }; rank 5 { do reduce };");
  const Report report = ReportOf(slow);
  const RankGroupRow* pair = GroupOf(report, {6, 7});
  ASSERT_NE(pair, nullptr);
  EXPECT_NEAR(pair->gb_per_s, 19, 2);
  EXPECT_THAT(ToText(report, {}),
              HasSubstr("slowest: ranks 6, 7 on host1 at 1"));
}

TEST(RankGroupsTest, ALateRankIsFoundAmongItsGroups) {
  const Report report =
      ReportOf(Mesh("mesh_tp", "mesh_dp", "rank 3 { host 6ms }"));
  const Finding* finding = Find(report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->where, HasSubstr("rank 3"));
  const RankGroupRow* pair = GroupOf(report, {2, 3});
  ASSERT_NE(pair, nullptr);
  EXPECT_EQ(pair->last_rank, 3);
  EXPECT_NEAR(pair->waiting_ms, 3, 0.5);  // 6 ms for one of two ranks
  // Rank 2 is late in its data-parallel group, because it waits for rank 3.
  for (const RankWait& wait : report.ranks.waits) {
    EXPECT_TRUE(wait.ms < 0.5 || wait.waits_for == 3)
        << wait.rank << " for " << wait.waits_for;
  }
  EXPECT_LT(report.ranks.rows[2].late_ms, 0.5);
  // The step of the job without the late rank.
  const double truth =
      MustRunProgram(Mesh("mesh_tp", "mesh_dp", ""), {.record = false})
          .mean_step_ms;
  ASSERT_EQ(report.ranks.why_not_mended, "");
  EXPECT_EQ(report.ranks.mended.rank, 3);
  EXPECT_NEAR(report.ranks.mended.after_ms, truth, 0.05 * truth);
}

const MachineRow* MachineOf(const Report& report, const std::string& host) {
  const auto found =
      std::ranges::find(report.ranks.machines, host, &MachineRow::host);
  return found == report.ranks.machines.end() ? nullptr : &*found;
}

// Two machines with four ranks each: pairs inside a machine, and groups across
// both. The rates of their links are in GB/s.
std::string TwoMachines(const std::string& inside, const std::string& across,
                        const std::string& planted) {
  std::string text = Mesh("mesh_tp", "mesh_dp", planted, "rate=" + inside);
  const std::string group = "group=dp";
  text.replace(text.find("group=dp"), group.size(), "group=dp rate=" + across);
  return text;
}

TEST(MachinesTest, RatesInsideAndAcrossMachinesAreApart) {
  const Report report = ReportOf(TwoMachines("200", "20", ""));
  ASSERT_EQ(report.ranks.machines.size(), 2u);
  // 8 MB between two ranks, 1.5 x 25 MB among four ranks, and 25 us of latency
  // each.
  const double inside = 8e6 / (8e6 / 200 + 25'000);
  const double across = 1.5 * 25e6 / (1.5 * 25e6 / 20 + 25'000);
  for (const char* host : {"host0", "host1"}) {
    const MachineRow* machine = MachineOf(report, host);
    ASSERT_NE(machine, nullptr);
    EXPECT_NEAR(machine->inside_gb_per_s, inside, 0.08 * inside);
    EXPECT_NEAR(machine->across_gb_per_s, across, 0.08 * across);
    // The machines are equal.
    EXPECT_FALSE(machine->recurs) << machine->last << " " << machine->skewed;
    EXPECT_LT(machine->waited_for_ms, 0.1);
  }
  EXPECT_THAT(MachineOf(report, "host0")->ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(MachineOf(report, "host1")->ranks, ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(GroupOf(report, {4, 5})->late_host, "");
  EXPECT_THAT(ToText(report, {}), HasSubstr("host0, ranks 0, 1, 2, 3"));
  EXPECT_THAT(ToJson(report), HasSubstr("\"across_gb_per_s\": 1"));
}

TEST(MachinesTest, TheGroupThatLeavesTheMachineIsALineOfItsOwn) {
  // The last pair has ranks on both machines, with a link of 10 GB/s.
  std::string text = TwoMachines("200", "20", "");
  const std::string groups = "0,1 2,3 4,5 6,7";
  text.replace(text.find(groups), groups.size(), "0,1 2,7 4,5 3,6");
  const std::string reduce = "define reduce { ";
  text.replace(
      text.find(reduce), reduce.size(),
      "define far { collective all_reduce 8MB group=tp rate=10 }\n" + reduce);
  const std::string all = "do reduce;";
  text.replace(text.find(all), all.size(),
               "rank 0 { do reduce }; rank 1 { do reduce }; rank 4 { do reduce "
               "}; rank 5 { do reduce }; rank 2 { do far }; rank 7 { do far }; "
               "rank 3 { do far }; rank 6 { do far };");
  const Report report = ReportOf(text);
  const RankGroupRow* far = GroupOf(report, {2, 7});
  const RankGroupRow* near = GroupOf(report, {0, 1});
  ASSERT_NE(far, nullptr);
  ASSERT_NE(near, nullptr);
  EXPECT_EQ(far->hosts, 2);
  EXPECT_EQ(near->hosts, 1);
  EXPECT_NEAR(far->gb_per_s, 8e6 / (8e6 / 10 + 25'000), 0.8);
  EXPECT_GT(near->gb_per_s, 100);
  const std::string printed = ToText(report, {});
  size_t lines = 0;
  for (size_t at = 0; (at = printed.find("tensor (mesh_tp), 2 groups of 2",
                                         at)) != std::string::npos;
       ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, 2u) << printed;
}

TEST(MachinesTest, WaitsThatRecurOnOneMachineNameIt) {
  const Report report = ReportOf(TwoMachines(
      "200", "20",
      "rank 4 { host 3ms }; rank 5 { host 3ms }; rank 6 { host 3ms }; rank 7 { "
      "host 3ms }"));
  const MachineRow* slow = MachineOf(report, "host1");
  const MachineRow* other = MachineOf(report, "host0");
  ASSERT_NE(slow, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(slow->recurs);
  EXPECT_FALSE(other->recurs);
  // All time that the other machine's ranks wait.
  double waiting = 0;
  for (int rank = 0; rank < 4; ++rank) {
    waiting += report.ranks.rows[rank].waiting_ms / 4;
  }
  EXPECT_GT(waiting, 1);
  EXPECT_NEAR(slow->waited_for_ms, waiting, 0.1 * waiting);
  EXPECT_LT(other->waited_for_ms, 0.1);
  EXPECT_GE(slow->last, slow->skewed / 2);
  EXPECT_EQ(report.ranks.machines[0].host, "host1");
  const RankGroupRow* across = GroupOf(report, {0, 2, 4, 6});
  ASSERT_NE(across, nullptr);
  EXPECT_EQ(across->late_host, "host1");
  EXPECT_GT(2 * across->late_host_last, across->skewed);
  EXPECT_EQ(GroupOf(report, {4, 5})->late_host, "");  // is on one machine
  const std::string text = ToText(report, {});
  EXPECT_THAT(text, HasSubstr("for ranks of host1 at "));
  EXPECT_THAT(text, HasSubstr("recurring"));
}

TEST(MachinesTest, LateRanksOfBothMachinesAreNobodysPattern) {
  const Report report =
      ReportOf(TwoMachines("200", "20",
                           "every 2 { rank 1 { host 3ms } } every 2 "
                           "offset=1 { rank 6 { host 3ms } }"));
  for (const MachineRow& machine : report.ranks.machines) {
    EXPECT_FALSE(machine.recurs) << machine.host;
  }
  EXPECT_EQ(GroupOf(report, {0, 2, 4, 6})->late_host, "");
}

TEST(MachinesTest, OneMachineOrUnknownOnesAreNotListed) {
  std::string text = TwoMachines("200", "20", "");
  text.replace(text.find("hosts=2"), 7, "hosts=1");
  const Report one = ReportOf(text);
  EXPECT_TRUE(one.ranks.machines.empty());
  EXPECT_THAT(ToText(one, {}), Not(HasSubstr("machines")));
  std::vector<RankDigest> digests = DigestsOf(TwoMachines("200", "20", ""));
  digests[3].report.run.host = "";
  EXPECT_TRUE(AnalyzeRanks(digests).ranks.machines.empty());
}

// A pipeline of four stages that runs all forward passes before all backward
// passes.
std::string Pipeline(int batches, const std::string& stage_2 = "200us",
                     const std::string& described = "mesh_pp") {
  const std::string m = std::to_string(batches);
  return R"(
gpu A100
cores 16
steps 4 warmup=6
ranks 4 network=200
group pp 0,1,2,3 described=)" +
         described + R"(
define forward { op aten::mm 12us { kernel gemm 200us } op aten::mm 12us { kernel gemm 200us } }
define backward { op aten::mm 12us { kernel gemm 400us } op aten::mm 12us { kernel gemm 400us } }
define forward2 { op aten::mm 12us { kernel gemm )" +
         stage_2 + R"( } op aten::mm 12us { kernel gemm )" + stage_2 + R"( } }
step {
  rank 0 { repeat )" +
         m + R"( { do forward; send 1 4MB group=pp }; repeat )" + m +
         R"( { recv 1 4MB group=pp; join; do backward } }
  rank 1 { repeat )" +
         m +
         R"( { recv 0 4MB group=pp; join; do forward; send 2 4MB group=pp }; repeat )" +
         m +
         R"( { recv 2 4MB group=pp; join; do backward; send 0 4MB group=pp } }
  rank 2 { repeat )" +
         m +
         R"( { recv 1 4MB group=pp; join; do forward2; send 3 4MB group=pp }; repeat )" +
         m +
         R"( { recv 3 4MB group=pp; join; do backward; send 1 4MB group=pp } }
  rank 3 { repeat )" +
         m + R"( { recv 2 4MB group=pp; join; do forward }; repeat )" + m +
         R"( { do backward; send 2 4MB group=pp } }
  range optimizer "Optimizer.step#AdamW.step" { op aten::_fused_adamw_ 90us { kernel adam 100us } }
  item
})";
}

TEST(PipelinesTest, CountsMicroBatchesAndBubbles) {
  for (int batches : {4, 12}) {
    const Report report = ReportOf(Pipeline(batches));
    ASSERT_EQ(report.ranks.pipelines.size(), 1u) << batches;
    const PipelineRow& row = report.ranks.pipelines[0];
    ASSERT_EQ(row.stages.size(), 4u);
    EXPECT_EQ(row.micro_batches, batches);
    EXPECT_EQ(row.chunks, 1);
    const double ideal = 3.0 / (batches + 3);
    EXPECT_DOUBLE_EQ(row.ideal_frac, ideal);
    // Messages and the optimizer also take time.
    EXPECT_GT(row.bubble_frac, 0.85 * ideal);
    EXPECT_LT(row.bubble_frac, ideal + 0.12);
    EXPECT_EQ(report.ranks.rows[2].stage, 2);
    EXPECT_TRUE(Find(report, "straggler-rank") == nullptr);
  }
}

// The interleaved 1F1B schedule: each of `p` ranks has `v` chunks of the model.
// Chunk c of rank r is stage c p + r. Source: Narayanan et al., "Efficient
// large-scale language model training on GPU clusters using Megatron-LM", 2021,
// section 2.2.2.
std::string ScheduleOf(int r, int p, int v, int m) {
  const auto forward = [&](int k) {
    const int chunk = k % (p * v) / p;
    std::string text;
    if (r > 0 || chunk > 0) {
      text +=
          "recv " + std::to_string((r + p - 1) % p) + " 1MB group=pp; join; ";
    }
    text += "do forward; ";
    if (r < p - 1 || chunk < v - 1) {
      text += "send " + std::to_string((r + 1) % p) + " 1MB group=pp; ";
    }
    return text;
  };
  const auto backward = [&](int k) {
    const int chunk = v - 1 - k % (p * v) / p;
    std::string text;
    if (r < p - 1 || chunk < v - 1) {
      text += "recv " + std::to_string((r + 1) % p) + " 1MB group=pp; join; ";
    }
    text += "do backward; ";
    if (r > 0 || chunk > 0) {
      text += "send " + std::to_string((r + p - 1) % p) + " 1MB group=pp; ";
    }
    return text;
  };
  const int all = m * v;
  const int ahead = v == 1 ? p - r - 1 : 2 * (p - r - 1) + (v - 1) * p;
  const int warmup = std::min(all, ahead);
  std::string text;
  for (int k = 0; k < warmup; ++k) text += forward(k);
  for (int k = warmup; k < all; ++k) text += forward(k) + backward(k - warmup);
  for (int k = all - warmup; k < all; ++k) text += backward(k);
  return "rank " + std::to_string(r) + " { " + text + "}\n";
}

// Waiting messages occupy a part of the device, so the kernels leave that part
// free.
std::string Interleaved(int p, int v, int m) {
  std::string ranks, steps;
  for (int r = 0; r < p; ++r) {
    ranks += (r > 0 ? "," : "") + std::to_string(r);
    steps += ScheduleOf(r, p, v, m);
  }
  return "gpu A100\ncores 16\nsteps 4 warmup=6\nranks " + std::to_string(p) +
         " network=1000 latency=2us\ngroup pp " + ranks +
         " described=mesh_pp\n"
         "define forward { op aten::mm 12us { kernel gemm 1ms fill=0.4 } }\n"
         "define backward { op aten::mm 12us { kernel gemm 2ms fill=0.4 } }\n"
         "step {\n" +
         steps +
         "range optimizer \"Optimizer.step#AdamW.step\" { op "
         "aten::_fused_adamw_ 90us { kernel adam 100us } }\n}";
}

TEST(PipelinesTest, InterleavedSchedulesHaveTheBubbleOfTheirChunks) {
  for (const auto& [p, v, m] : std::vector<std::array<int, 3>>{
           {4, 1, 8}, {4, 2, 8}, {4, 4, 8}, {4, 2, 16}, {3, 2, 6}, {8, 2, 8}}) {
    const Report report = ReportOf(Interleaved(p, v, m));
    const std::string name = std::to_string(p) + " ranks, " +
                             std::to_string(v) + " chunks, " +
                             std::to_string(m) + " micro-batches";
    ASSERT_EQ(report.ranks.pipelines.size(), 1u) << name;
    const PipelineRow& row = report.ranks.pipelines[0];
    EXPECT_EQ(row.chunks, v) << name;
    EXPECT_EQ(row.micro_batches, m) << name;
    const double ideal = (p - 1.0) / (v * m + p - 1);
    EXPECT_DOUBLE_EQ(row.ideal_frac, ideal) << name;
    EXPECT_NEAR(row.bubble_frac, ideal, 0.1 * ideal + 0.005) << name;
    // A stage either computes or waits; no wait counts twice.
    for (const PipelineStage& stage : row.stages) {
      const double step_ms =
          report.ranks.rows[static_cast<size_t>(stage.rank)].step_ms;
      EXPECT_NEAR(stage.busy_ms + stage.waiting_ms, step_ms, 0.01 * step_ms)
          << name << ", rank " << stage.rank;
    }
  }
}

TEST(PipelinesTest, MicroBatchesAreCountedInAllStepsAlsoOfACutDigest) {
  std::vector<RankDigest> digests = DigestsOf(Pipeline(4));
  const int64_t first = digests[0].collectives[0].step;
  for (RankDigest& digest : digests) {
    std::erase_if(digest.collectives, [&](const RankCollective& one) {
      return one.step > first + 1;
    });
  }
  ASSERT_EQ(AnalyzeRanks(digests).ranks.pipelines.size(), 1u);
  EXPECT_EQ(AnalyzeRanks(digests).ranks.pipelines[0].micro_batches, 4);
  // A message missing in one step must not give a fraction of a micro-batch.
  --digests[1].groups[0].received;
  ASSERT_GT(digests[1].groups[0].received, 0);
  const PipelineRow row = AnalyzeRanks(digests).ranks.pipelines[0];
  EXPECT_EQ(row.micro_batches, 0);
  EXPECT_EQ(row.ideal_frac, 0);
}

TEST(PipelinesTest, AMessageMayHaveTheSizeOfItsPair) {
  std::vector<RankDigest> digests = DigestsOf(Pipeline(4));
  for (RankDigest& digest : digests) {
    for (GroupTraffic& group : digest.groups) {
      if (group.kind == "point-to-point") group.size = 2;
    }
  }
  const Report report = AnalyzeRanks(digests);
  ASSERT_EQ(report.ranks.pipelines.size(), 1u);
  EXPECT_EQ(report.ranks.pipelines[0].stages.size(), 4u);
}

TEST(PipelinesTest, TheBubbleIsAFindingThatItsNumbersExplain) {
  const Report few = ReportOf(Pipeline(4));
  const Finding* finding = Find(few, "pipeline-bubble");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "ranks 0, 1, 2, 3");
  EXPECT_THAT(finding->evidence, HasSubstr("4 micro-batches"));
  EXPECT_THAT(finding->evidence, HasSubstr("43 %"));  // 3 / 7
  EXPECT_THAT(finding->fix_python, HasSubstr("more and smaller micro-batches"));
  EXPECT_THAT(finding->fix_python, HasSubstr("(8 would wait for 27 %"));
  EXPECT_EQ(Find(few, "exposed-collective"), nullptr);
  // With many micro-batches, one stage takes four times as long in the forward
  // pass.
  const Report uneven = ReportOf(Pipeline(24, "1200us"));
  const Finding* other = Find(uneven, "pipeline-bubble");
  ASSERT_NE(other, nullptr);
  EXPECT_THAT(other->fix_python, HasSubstr("move layers"));
  EXPECT_THAT(other->fix_python, HasSubstr("rank 2"));
  EXPECT_EQ(other->fix_python.find("micro-batches"), std::string::npos)
      << other->fix_python;
  // A single stage does not show the pipeline.
  EXPECT_THAT(WhySkipped(Analyze(MustRunProgram(Pipeline(4)).ranks[1]),
                         "pipeline-bubble"),
              HasSubstr("all stages"));
}

TEST(PipelinesTest, MessagesShowAPipelineWithoutADescription) {
  const Report report = ReportOf(Pipeline(4, "200us", "undefined"));
  ASSERT_EQ(report.ranks.groups.size(), 1u);
  EXPECT_EQ(report.ranks.groups[0].parallelism, "pipeline");
  EXPECT_THAT(report.ranks.groups[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(report.ranks.pipelines.size(), 1u);
}

}  // namespace
}  // namespace stepscope::rank_groups_test
