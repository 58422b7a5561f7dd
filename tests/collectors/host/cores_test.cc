#include "cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "support/temp_folder.h"

namespace stepscope::cores_test {
namespace {

// A fake machine that consists of the files that the code reads.
class CoresTest : public ::testing::Test {
 protected:
  void Affinity(const std::string& list) {
    machine_.Write("proc/self/status",
                   "Name:\ttrain\nCpus_allowed:\tff\n"
                   "Cpus_allowed_list:\t" +
                       list + "\n");
  }
  void Group(const std::string& line) {
    machine_.Write("proc/self/cgroup", line + "\n");
  }
  void File(const std::string& name, const std::string& text) {
    machine_.Write("sys/fs/cgroup/" + name, text + "\n");
  }
  int32_t Cores() const { return UsableCores(machine_.path().string()); }

  TempFolder machine_;
};

TEST_F(CoresTest, CountsTheAffinityList) {
  Affinity("0-3,8,10-11");
  EXPECT_EQ(Cores(), 7);
  Affinity("5");
  EXPECT_EQ(Cores(), 1);
  Affinity("0-127");
  EXPECT_EQ(Cores(), 128);
}

TEST_F(CoresTest, AQuotaOfVersionTwoIsRoundedUp) {
  Affinity("0-7");
  Group("0::/job");
  File("job/cpu.max", "250000 100000");
  EXPECT_EQ(Cores(), 3);
  File("job/cpu.max", "200000 100000");
  EXPECT_EQ(Cores(), 2);
  File("job/cpu.max", "200001 100000");
  EXPECT_EQ(Cores(), 3);
  File("job/cpu.max", "1000 100000");
  EXPECT_EQ(Cores(), 1);
}

TEST_F(CoresTest, NoQuotaLeavesTheAffinity) {
  Affinity("0-7");
  Group("0::/job");
  File("job/cpu.max", "max 100000");
  EXPECT_EQ(Cores(), 8);
}

TEST_F(CoresTest, AQuotaAboveTheAffinityChangesNothing) {
  Affinity("0-1");
  Group("0::/job");
  File("job/cpu.max", "800000 100000");
  EXPECT_EQ(Cores(), 2);
}

TEST_F(CoresTest, TheTightestGroupOnTheWayUpCounts) {
  Affinity("0-15");
  Group("0::/pod/container");
  File("pod/container/cpu.max", "max 100000");
  File("pod/cpu.max", "400000 100000");
  EXPECT_EQ(Cores(), 4);
}

TEST_F(CoresTest, InAContainerTheMountItselfIsTheGroup) {
  Affinity("0-15");
  Group("0::/docker/0123456789ab");  // the host's path, invisible in here
  File("cpu.max", "300000 100000");
  EXPECT_EQ(Cores(), 3);
}

TEST_F(CoresTest, ReadsVersionOne) {
  Affinity("0-7");
  Group("5:cpuset:/\n4:cpu,cpuacct:/job\n0::/");
  File("cpu,cpuacct/job/cpu.cfs_quota_us", "150000");
  File("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Cores(), 2);
  File("cpu,cpuacct/job/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(Cores(), 8);
}

TEST_F(CoresTest, AControllerThatOnlySoundsAlikeIsNotAsked) {
  Affinity("0-7");
  Group("2:cpuacct:/job");
  File("cpuacct/job/cpu.cfs_quota_us", "100000");
  File("cpuacct/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Cores(), 8);
}

TEST_F(CoresTest, NothingToReadIsUnknown) {
  EXPECT_EQ(Cores(), -1);
  Affinity("garbage");
  EXPECT_EQ(Cores(), -1);
}

TEST_F(CoresTest, AgreesWithTheSchedulerHere) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int32_t cores = UsableCores("");
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, CPU_COUNT(&set));
}

TEST_F(CoresTest, NamesTheProcessor) {
  machine_.Write("proc/cpuinfo",
                 "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\n"
                 "model name\t: Intel(R) Xeon(R) Platinum 8488C\n");
  EXPECT_EQ(CpuModel(machine_.path().string()),
            "Intel(R) Xeon(R) Platinum 8488C");
  EXPECT_EQ(CpuModel("/nonexistent"), "");
}

}  // namespace
}  // namespace stepscope::cores_test
