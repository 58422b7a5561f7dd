// Tests `stepscope list`, and `analyze` on a folder of runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>

#include <filesystem>
#include <string>

#include "support/random_trace.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::list_command_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kReport =
    R"({"steps": {"count": 6, "mean_ms": 174.8}, "findings": [
      {"id": "few-steps", "severity": "note", "gain_kind": "none",
       "gain_ms_per_step": {"expected": 0}},
      {"id": "sync-data-loading", "severity": "critical",
       "gain_kind": "predicted", "gain_ms_per_step": {"expected": 61.2}}]})";

class ListCommandTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' " + words, folder_);
  }

  // Writes a window of `run` to `log`, with the report `advice` for each rank.
  void Window(const std::string& log, const std::string& run, int32_t cycle,
              int32_t ranks, const std::string& advice) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const LogPaths paths =
          PathsFor(folder_.At(log), run, "node", rank, cycle);
      for (const std::string& path : {paths.chrome_kineto, paths.chrome_tb}) {
        std::filesystem::create_directories(
            std::filesystem::path(path).parent_path());
        ASSERT_TRUE(WriteTrace(RandomTrace({.seed = 9, .rank = rank}), {},
                               Format::kChromeKineto, path)
                        .ok());
      }
      if (advice.empty()) continue;
      std::filesystem::create_directories(
          std::filesystem::path(paths.advice).parent_path());
      ASSERT_TRUE(WriteText(advice, paths.advice).ok());
    }
  }

  TempFolder folder_;
};

// What the ranks wait for is only in the report of all of them.
TEST_F(ListCommandTest, ShowsTheReportOfTheJobWhereThereIsOne) {
  Window("logs", "early_2026_01_31_14_05_09", 0, 2, kReport);
  const LogPaths paths =
      PathsFor(folder_.At("logs"), "early_2026_01_31_14_05_09", "node", 0, 0);
  const auto window =
      std::filesystem::path(paths.advice).parent_path().parent_path();
  ASSERT_TRUE(WriteText(R"({"steps": {"count": 5, "mean_ms": 14.6},
      "findings": [{"id": "straggler-rank", "severity": "critical",
      "gain_kind": "predicted", "gain_ms_per_step": {"expected": 9.78}}]})",
                        (window / "report.json").string())
                  .ok());
  const Outcome run = Run("list " + folder_.At("logs"));
  EXPECT_THAT(run.out, HasSubstr("2 ranks, 5 steps of 14.6 ms; first: "
                                 "straggler-rank, 9.78 ms per step"));
}

TEST_F(ListCommandTest, NamesRunsAndWindowsOldestFirst) {
  Window("logs", "late_2026_02_01_10_00_00", 0, 1, "");
  Window("logs", "early_2026_01_31_14_05_09", 0, 2, kReport);
  Window("logs", "early_2026_01_31_14_05_09", 1, 2, kReport);
  const Outcome run = Run("list " + folder_.At("logs"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, StartsWith(folder_.At("logs") + ": 2 runs\n\nearly  "
                                                       "2026-01-31 14:05:09"));
  EXPECT_THAT(run.out,
              HasSubstr("\n  c0    2 ranks, 6 steps of 175 ms; first: "
                        "sync-data-loading, 61.2 ms per step\n  c1  "));
  EXPECT_LT(run.out.find("\nearly "), run.out.find("\nlate "));
  EXPECT_THAT(run.out, HasSubstr("1 rank, no report yet: stepscope analyze " +
                                 folder_.At("logs/stepscope/late")));

  simdjson::dom::parser parser;
  simdjson::dom::object list;
  const Outcome json = Run("list --format json " + folder_.At("logs"));
  ASSERT_FALSE(parser.parse(json.out).get(list)) << json.out;
  simdjson::dom::array runs = list["runs"];
  ASSERT_EQ(runs.size(), 2u);
  simdjson::dom::object early = runs.at(0);
  EXPECT_EQ(std::string_view(early["name"]), "early");
  EXPECT_EQ(std::string_view(early["start"]), "2026_01_31_14_05_09");
  EXPECT_EQ(simdjson::dom::array(early["windows"]).size(), 2u);
  simdjson::dom::object window = early["windows"].at(0);
  EXPECT_EQ(std::string_view(window["first_finding"]), "sync-data-loading");
  EXPECT_DOUBLE_EQ(double(window["first_gain_ms_per_step"]), 61.2);
  EXPECT_EQ(simdjson::dom::array(window["traces"]).size(), 2u);
  const std::string docs = ReadBytes(STEPSCOPE_TEST_DATA "/../../docs/json.md");
  const std::string section = docs.substr(docs.find("\n## list\n"));
  for (const simdjson::dom::object& object : {list, early, window}) {
    for (const auto& [key, value] : object)
      EXPECT_THAT(section, HasSubstr("`" + std::string(key) + "`"));
  }
}

TEST_F(ListCommandTest, FindsLogDirectoriesAndFoldersOfTracesBelow) {
  Window("all/resnet", "a_2026_01_31_14_05_09", 0, 1, kReport);
  std::filesystem::create_directories(folder_.At("all/kineto"));
  ASSERT_TRUE(WriteTrace(RandomTrace({.seed = 3}), {}, Format::kChromeKineto,
                         folder_.At("all/kineto/w.pt.trace.json"))
                  .ok());
  folder_.Write("all/settings/model.json", "{}");
  const Outcome run = Run("list " + folder_.At("all"));
  EXPECT_THAT(run.out, HasSubstr(": 2 runs\n"));
  EXPECT_THAT(run.out, HasSubstr("\nkineto  "));
  EXPECT_THAT(run.out, HasSubstr("\na  2026-01-31"));
  EXPECT_THAT(run.out, Not(HasSubstr("settings")));
}

TEST_F(ListCommandTest, AnalyzeOfAFolderOfRunsListsThem) {
  Window("all/resnet", "a_2026_01_31_14_05_09", 0, 1, kReport);
  Window("all/gpt", "b_2026_01_31_14_05_10", 0, 1, kReport);
  const Outcome run = Run("analyze " + folder_.At("all"));
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr("holds these runs; analyze one of them"));
  EXPECT_THAT(run.err, HasSubstr(folder_.At("all/gpt/stepscope/b_2026")));
}

TEST_F(ListCommandTest, PagesThatWereWrittenAreNamed) {
  Window("logs", "a_2026_01_31_14_05_09", 0, 2, kReport);
  const std::string page = folder_.Write(
      "logs/stepscope/a_2026_01_31_14_05_09/c0/advice/rank1.html", "<p>");
  EXPECT_THAT(Run("list --format json " + folder_.At("logs")).out,
              HasSubstr("\"" + page + "\""));
}

TEST_F(ListCommandTest, AReportThatIsDamagedCountsAsNone) {
  Window("logs", "a_2026_01_31_14_05_09", 0, 1, "{\"steps\": ");
  EXPECT_THAT(Run("list " + folder_.At("logs")).out,
              HasSubstr("1 rank, no report yet"));
}

TEST_F(ListCommandTest, AFolderWithoutRunsIsStatusOne) {
  std::filesystem::create_directories(folder_.At("none"));
  const Outcome none = Run("list " + folder_.At("none"));
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("no runs and no traces"));
  EXPECT_EQ(Run("list " + folder_.At("missing")).status, 1);
  EXPECT_EQ(Run("list").status, 2);
}

}  // namespace
}  // namespace stepscope::list_command_test
