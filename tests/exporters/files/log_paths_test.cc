#include <gtest/gtest.h>
#include <stepscope/logdir.h>

#include <regex>
#include <set>
#include <string>

namespace stepscope::log_paths_test {
namespace {

TEST(PathsForTest, FollowsTheLayout) {
  const LogPaths paths =
      PathsFor("runs/a", "2026_11_21_08_00_00", "node7", 3, 1);
  EXPECT_EQ(paths.chrome_tb,
            "runs/a/2026_11_21_08_00_00/node7_00003.000001.pt.trace.json.gz");
  EXPECT_EQ(paths.xspace,
            "runs/a/plugins/profile/2026_11_21_08_00_00_c1/"
            "node7_rank3.xplane.pb");
  EXPECT_EQ(paths.chrome_kineto,
            "runs/a/stepscope/2026_11_21_08_00_00/c1/trace/rank3.json.gz");
  EXPECT_EQ(paths.advice,
            "runs/a/stepscope/2026_11_21_08_00_00/c1/advice/rank3.json");
  EXPECT_EQ(paths.page,
            "runs/a/stepscope/2026_11_21_08_00_00/c1/advice/rank3.html");
  EXPECT_EQ(paths.report, "runs/a/stepscope/2026_11_21_08_00_00/c1/report.txt");
}

TEST(PathsForTest, ThePluginFindsWorkerAndSpanInTheName) {
  // The pattern with which torch-tb-profiler 0.4.3 splits file names.
  const std::regex plugin(R"(^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$)");
  for (const char* host : {"node7", "a.b.example.org", "10.0.0.1", "my_host"}) {
    const std::string path = PathsFor("d", "r", host, 12, 4).chrome_tb;
    std::smatch match;
    const std::string name = path.substr(path.rfind('/') + 1);
    ASSERT_TRUE(std::regex_match(name, match, plugin)) << name;
    EXPECT_EQ(match[1], std::string(host) + "_00012");
    EXPECT_EQ(match[2], ".000004");
  }
}

TEST(PathsForTest, UniqueTextKeepsTwoProcessesApart) {
  const LogPaths one = PathsFor("d", "r", "h", 0, 0);
  const LogPaths two = PathsFor("d", "r", "h", 0, 0, "pid12");
  const LogPaths three = PathsFor("d", "r", "h", 0, 0, "pid13");
  std::set<std::string> all;
  for (const LogPaths& paths : {one, two, three}) {
    all.insert({paths.chrome_tb, paths.xspace, paths.chrome_kineto,
                paths.advice, paths.page, paths.report});
  }
  EXPECT_EQ(all.size(), 18u);
}

TEST(PathsForTest, OddHostsAndRanksMakeGoodNames) {
  const LogPaths paths = PathsFor("d", "r", "a/b c:d", -1, -1);
  EXPECT_EQ(paths.chrome_tb, "d/r/a-b-c-d_00000.000000.pt.trace.json.gz");
  EXPECT_EQ(PathsFor("d", "r", "", 0, 0).xspace,
            "d/plugins/profile/r_c0/host_rank0.xplane.pb");
}

TEST(RunNameTest, IsTheNameAndTheStart) {
  EXPECT_EQ(RunName("resnet18", "2026_01_02_03_04_05"),
            "resnet18_2026_01_02_03_04_05");
  EXPECT_EQ(RunName("v1.2_a-B", "2026_01_02_03_04_05"),
            "v1.2_a-B_2026_01_02_03_04_05");
}

TEST(RunNameTest, HostileNamesStayInTheirFolder) {
  const std::string start = "2026_01_02_03_04_05";
  EXPECT_EQ(RunName("../../etc", start), "etc_" + start);
  EXPECT_EQ(RunName("a/b\\c d\n$(x)", start), "a-b-c-d---x-_" + start);
  EXPECT_EQ(RunName("-rf", start), "rf_" + start);
  EXPECT_EQ(RunName(".hidden", start), "hidden_" + start);
  EXPECT_EQ(RunName(std::string("a\0b", 3), start), "a-b_" + start);
  for (const char* nothing : {"", "..", "---", "/", "\xc3\xa9\xc3\xa9"})
    EXPECT_EQ(RunName(nothing, start), start) << nothing;
  EXPECT_EQ(RunName(std::string(5000, 'x'), start),
            std::string(64, 'x') + "_" + start);
}

}  // namespace
}  // namespace stepscope::log_paths_test
