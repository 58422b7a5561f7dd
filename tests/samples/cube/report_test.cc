#include "cube/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <limits>
#include <string>

namespace cube {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::optional<Ratio> About(double ratio) {
  return Ratio{ratio, {0.9 * ratio, 1.1 * ratio}};
}

// Two flags that cancel; --c does nothing, and replay does not know it.
AnalysisContext Cancelling() {
  AnalysisContext measured;
  Cube& cube = measured.cube;
  cube.factors = {
      {"--a", {"0", "1"}}, {"--b", {"0", "1"}}, {"--c", {"off", "on"}}};
  cube.points = measure::Cross(cube.factors, {});
  for (const measure::Point& point : cube.points) {
    const double both[2][2] = {{100, 130}, {150, 150}};
    const double rate = both[point.levels[0]][point.levels[1]];
    cube.rates.push_back({rate, 1.004 * rate, 0.998 * rate});
    const double replay[2][2] = {{1, 1.25}, {1.5, 1.7}};
    measured.expected.points.push_back(
        point.levels[2] == 0 ? About(replay[point.levels[0]][point.levels[1]])
                             : std::nullopt);
  }
  measured.expected.unknown = {"--c"};
  return measured;
}

TEST(CubeReportTest, SetsExpectedBesideMeasured) {
  const std::string text = ToText(Cancelling());
  EXPECT_THAT(text, HasSubstr("replay cannot express --c: no figure where"));
  EXPECT_THAT(text,
              HasSubstr("150.0   0.2 %        1.50    x 1.70  --a 1 --b 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("150.0   0.2 %        1.50         -  --a 1 --b 1 --c\n"));
  EXPECT_THAT(text, HasSubstr("x 1.25 (1.12 to 1.38)\n"));
  EXPECT_THAT(text,
              HasSubstr("--a 1 with --b 1: cancel: no more than the better one "
                        "alone\n   alone x 1.50 and x 1.30, product x 1.95; "
                        "together x 1.50"));
  EXPECT_THAT(text, HasSubstr("   replay: alone x 1.50 and x 1.25, product x "
                              "1.88; together x 1.70; together / product x "
                              "0.91\n"));
}

TEST(CubeReportTest, EveryPairHasALine) {
  const std::string text = ToText(Cancelling());
  EXPECT_THAT(text, HasSubstr("1 of 3 pairs are not the product of both"));
  for (const char* pair : {"--a 1 with --c ", "--b 1 with --c "}) {
    const size_t at = text.find(pair);
    ASSERT_NE(at, text.npos) << text;
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_THAT(line, HasSubstr(" x 1.00 (")) << line;
    EXPECT_TRUE(line.ends_with("  -")) << line;
  }
}

TEST(CubeReportTest, SaysWhyReplayExpectsNothing) {
  AnalysisContext measured = Cancelling();
  measured.expected = {.points = std::vector<std::optional<Ratio>>(8),
                       .unknown = {},
                       .why_not = "cannot read it"};
  const std::string text = ToText(measured);
  EXPECT_THAT(text, HasSubstr("replay expects nothing: cannot read it\n"));
  EXPECT_THAT(text, HasSubstr("   replay: -\n"));
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_FALSE(parser.parse(ToJson(measured)).get(json));
  EXPECT_EQ(std::string_view(json["replay_why_not"]), "cannot read it");
  for (simdjson::dom::element pair : json["pairs"].get_array()) {
    EXPECT_TRUE(pair["replay"].error());
  }
}

TEST(CubeReportTest, FilesHoldTheExpectationToo) {
  AnalysisContext measured = Cancelling();
  measured.expected.points[6]->interval.high =
      std::numeric_limits<double>::infinity();
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_FALSE(parser.parse(ToJson(measured)).get(json));
  EXPECT_EQ(simdjson::dom::array(json["replay_unknown"]).size(), 1u);
  simdjson::dom::array points = json["points"];
  EXPECT_DOUBLE_EQ(double(points.at(6)["replay_ratio"]), 1.7);
  EXPECT_TRUE(points.at(6)["replay_high"].is_null());
  EXPECT_TRUE(points.at(7)["replay_ratio"].error());
  simdjson::dom::array effects = json["effects"];
  EXPECT_DOUBLE_EQ(double(effects.at(0)["replay_ratio"]), 1.5);
  EXPECT_TRUE(effects.at(2)["replay_ratio"].error());
  for (simdjson::dom::element pair : json["pairs"].get_array()) {
    const bool known = std::string_view(pair["second"]) == "--b 1";
    EXPECT_EQ(pair["replay"].error() == simdjson::SUCCESS, known);
    if (!known) continue;
    EXPECT_NEAR(double(pair["replay"]["both"]), 1.7, 1e-6);
    EXPECT_NEAR(double(pair["replay"]["both_over_product"]), 1.7 / 1.875, 1e-6);
  }
}

}  // namespace
}  // namespace cube
