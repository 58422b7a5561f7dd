#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/run_identity.h>
#include <unistd.h>

#include <map>
#include <string>

namespace stepscope::run_identity_test {
namespace {

RunIdentity From(const std::map<std::string, std::string>& variables) {
  return IdentityFrom([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RunIdentityTest, WithoutALauncherItIsTheOnlyRank) {
  const RunIdentity identity = From({});
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.world_size, 1);
  EXPECT_EQ(identity.local_ranks, 1);
  EXPECT_EQ(identity.job, "");
  EXPECT_FALSE(identity.host.empty());
}

TEST(RunIdentityTest, TakesTorchrunsWord) {
  const RunIdentity identity = From({{"RANK", "5"},
                                     {"WORLD_SIZE", "16"},
                                     {"LOCAL_WORLD_SIZE", "8"},
                                     {"TORCHELASTIC_RUN_ID", "abc"}});
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.world_size, 16);
  EXPECT_EQ(identity.local_ranks, 8);
}

TEST(RunIdentityTest, AllRanksOfAJobNameItAlikeAndARestartNamesItAnew) {
  std::map<std::string, std::string> variables = {
      {"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"TORCHELASTIC_RUN_ID", "none"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"MASTER_PORT", "29500"}};
  const std::string first = From(variables).job;
  variables["RANK"] = "1";
  EXPECT_EQ(From(variables).job, first);
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(From(variables).job, first);
}

TEST(RunIdentityTest, NonsenseCountsAsNotSet) {
  for (const auto& [rank, world] :
       std::map<std::string, std::string>{{"x", "2"},
                                          {"2", "2"},
                                          {"-1", "2"},
                                          {"1", ""},
                                          {"1 ", "2"},
                                          {"99999999999999999999", "2"}}) {
    const RunIdentity identity = From({{"RANK", rank}, {"WORLD_SIZE", world}});
    EXPECT_EQ(identity.rank, 0) << rank << "/" << world;
    EXPECT_EQ(identity.world_size, 1) << rank << "/" << world;
    EXPECT_THAT(identity.problem, testing::HasSubstr("RANK=" + rank));
  }
}

TEST(RunIdentityTest, SaysThatItIgnoresARankOutsideOfItsJob) {
  EXPECT_EQ(From({{"RANK", "7"}, {"WORLD_SIZE", "2"}}).problem,
            "RANK=7 and WORLD_SIZE=2 name no rank of a job, so this process is "
            "recorded as rank 0 of 1");
  EXPECT_THAT(From({{"WORLD_SIZE", "2"}}).problem,
              testing::HasSubstr("RANK is not set and WORLD_SIZE=2"));
}

TEST(RunIdentityTest, HasNoProblemWithoutALauncherOrWithARank) {
  EXPECT_EQ(From({}).problem, "");
  EXPECT_EQ(From({{"WORLD_SIZE", "1"}}).problem, "");
  EXPECT_EQ(From({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).problem, "");
}

TEST(RunIdentityTest, UnknownLocalRanksStayUnknown) {
  EXPECT_EQ(From({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).local_ranks, -1);
  EXPECT_EQ(From({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).local_ranks, 1);
}

TEST(RunIdentityTest, WritesItsStartForAFolder) {
  EXPECT_THAT(From({}).start,
              testing::MatchesRegex(
                  "[0-9]{4}_[0-9]{2}_[0-9]{2}_[0-9]{2}_[0-9]{2}_[0-9]{2}"));
}

}  // namespace
}  // namespace stepscope::run_identity_test
