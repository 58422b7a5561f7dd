#include "ladder/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace ladder {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<double> Widths(const std::string& svg) {
  const std::regex pattern(
      "<rect class=\"(bar|faint)\"[^>]* width=\"([0-9.]+)\"");
  std::vector<double> widths;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end;
       ++at) {
    widths.push_back(std::stod((*at)[2]));
  }
  return widths;
}

TEST(ChartTest, BarsAreAsLongAsTheirValues) {
  const std::vector<double> widths =
      Widths(DrawBars("t", {{"a", 100, 90, 110}, {"b", 50, 50, 50}}));
  ASSERT_EQ(widths.size(), 2u);
  EXPECT_NEAR(widths[0] / widths[1], 2, 0.01);
  EXPECT_LT(widths[0], 420.1) << "the longest whisker must fit, too";
}

TEST(ChartTest, ARungTakenBackIsAnOutline) {
  const std::string svg = DrawBars("t", {{"a", 1, 1, 1, true}});
  EXPECT_THAT(svg, HasSubstr("class=\"faint\""));
  EXPECT_THAT(svg, Not(HasSubstr("class=\"bar\"")));
}

TEST(ChartTest, TextIsEscaped) {
  const std::string svg = DrawBars("<&>", {{"\"a\" & <b>", 1, 1, 1}});
  EXPECT_THAT(svg, HasSubstr(">&quot;a&quot; &amp; &lt;b&gt;</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>&lt;&amp;&gt;</title>"));
}

TEST(ChartTest, ValuesOfZeroDrawNothingInfinite) {
  const std::string svg = DrawBars("t", {{"a", 0, 0, 0}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(ChartTest, DarkPagesHaveColoursOfTheirOwn) {
  EXPECT_THAT(DrawBars("t", {{"a", 1, 1, 1}}),
              HasSubstr("prefers-color-scheme:dark"));
}

}  // namespace
}  // namespace ladder
