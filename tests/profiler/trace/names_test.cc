#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <set>
#include <string>

namespace stepscope::names_test {
namespace {

TEST(ClassifyRangeTest, KnowsTheNamesTorchWrites) {
  EXPECT_EQ(ClassifyRange(
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
            RangeKind::kLoader);
  EXPECT_EQ(ClassifyRange("enumerate(DataPipe)#Mapper"), RangeKind::kLoader);
  EXPECT_EQ(ClassifyRange("Optimizer.step#SGD.step"), RangeKind::kOptimizer);
  EXPECT_EQ(ClassifyRange("Optimizer.zero_grad#SGD.zero_grad"),
            RangeKind::kOptimizer);
  EXPECT_EQ(ClassifyRange("nccl:all_reduce"), RangeKind::kCollective);
  EXPECT_EQ(ClassifyRange("DistributedDataParallel.forward"),
            RangeKind::kCollective);
}

TEST(ClassifyRangeTest, TakesAnythingElseForAUserRange) {
  EXPECT_EQ(ClassifyRange("my enumerate(DataLoader)#x"), RangeKind::kUser);
  EXPECT_EQ(ClassifyRange("forward"), RangeKind::kUser);
  EXPECT_EQ(ClassifyRange(""), RangeKind::kUser);
}

TEST(LaunchesGraphTest, KnowsTheLaunchesOfEachInterface) {
  EXPECT_TRUE(LaunchesGraph("cudaGraphLaunch"));
  EXPECT_TRUE(LaunchesGraph("cuGraphLaunch"));
  EXPECT_TRUE(LaunchesGraph("hipGraphLaunch"));
  EXPECT_FALSE(LaunchesGraph("cudaGraphUpload"));
  EXPECT_FALSE(LaunchesGraph("cudaLaunchKernel"));
}

TEST(StepNumberTest, ReadsTheNumberAndNothingElse) {
  EXPECT_EQ(StepNumber("ProfilerStep#12"), 12);
  EXPECT_EQ(StepNumber("ProfilerStep#0"), 0);
  EXPECT_EQ(StepNumber("ProfilerStep*"), -1);
  EXPECT_EQ(StepNumber("ProfilerStep#"), -1);
  EXPECT_EQ(StepNumber("ProfilerStep#1x"), -1);
  EXPECT_EQ(StepNumber("ProfilerStep#99999999999999999999"), -1);
  EXPECT_LT(StepNumber("ProfilerStep#-5"), 0);
  for (const char* mark :
       {"ProfilerStep#12", "ProfilerStep#99999999999999999999",
        "ProfilerStep#-5"}) {
    EXPECT_TRUE(IsStepMark(mark)) << mark;
  }
  for (const char* name : {"ProfilerStep#", "ProfilerStep#-", "ProfilerStep#1x",
                           "ProfilerStep*", "step 1"}) {
    EXPECT_FALSE(IsStepMark(name)) << name;
  }
}

TEST(KindNameTest, GivesEveryKindANameOfItsOwn) {
  std::set<std::string> names;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    ASSERT_NE(KindName(static_cast<Kind>(kind)), nullptr);
    names.insert(KindName(static_cast<Kind>(kind)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Kind::kCount));
  EXPECT_EQ(names.count(""), 0u);
}

TEST(InternTest, GivesEqualTextsOneIdHoweverManyThereAre) {
  TraceBuilder builder;
  std::vector<NameId> ids;
  for (int i = 0; i < 5000; ++i)
    ids.push_back(builder.Intern("name " + std::to_string(i)));
  EXPECT_EQ(std::set<NameId>(ids.begin(), ids.end()).size(), 5000u);
  for (int i = 0; i < 5000; ++i)
    EXPECT_EQ(builder.Intern("name " + std::to_string(i)), ids[i]);
  EXPECT_EQ(builder.Intern(""), 0u);
  const Trace trace = builder.Build();
  EXPECT_EQ(trace.name(ids[4999]), "name 4999");
}

}  // namespace
}  // namespace stepscope::names_test
