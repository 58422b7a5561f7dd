// Tests the page of a report: its content, its maximum size, and that no name
// in a trace can become markup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/analysis.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/page/page_assets.h"
#include "report/page/page_data.h"
#include "report/page/page_words.h"
#include "support/cpu_loop.h"
#include "support/gpu_loop.h"
#include "support/random_trace.h"
#include "support/simulated_training.h"
#include "timeline/causes.h"

namespace stepscope::page_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

size_t CountOf(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

std::string PageOf(const Trace& trace) {
  PageDetails details;
  const Report report = Analyze(trace, &details);
  return ToHtml(report, details);
}

// Returns the text of the page's data block `id`.
std::string Block(const std::string& page, const std::string& id) {
  const std::string begin =
      "<script type=\"application/json\" id=\"" + id + "\">";
  const size_t at = page.find(begin);
  if (at == std::string::npos) return "";
  const size_t end = page.find("</script>", at);
  return page.substr(at + begin.size(), end - at - begin.size());
}

TEST(PageDataTest, DropsWhiteSpaceAndKeepsValues) {
  EXPECT_EQ(PageData("{\n  \"a\": [\n    1,\n    true\n  ],\n  \"b c\": \"x  "
                     "y\"\n}\n",
                     {}),
            R"({"a":[1,true],"b c":"x  y"})");
}

TEST(PageDataTest, NoCharacterEndsTheBlock) {
  const std::string data =
      PageData("[\"</script><!--&\xe2\x80\xa8\xe2\x80\xa9\"]", {});
  EXPECT_EQ(data, R"(["\u003c/script\u003e\u003c!--\u0026\u2028\u2029"])");
  simdjson::dom::parser parser;
  simdjson::dom::array array;
  ASSERT_FALSE(parser.parse(data).get(array));
  EXPECT_EQ(std::string_view(array.at(0)),
            "</script><!--&\xe2\x80\xa8\xe2\x80\xa9");
}

TEST(PageDataTest, KeysAreEscapedToo) {
  EXPECT_EQ(PageData(R"({"<b>":1})", {}), "{\"\\u003cb\\u003e\":1}");
}

TEST(PageDataTest, CutsNamesBetweenCharacters) {
  const PageLimits limits{.sentence = 6, .name = 3};
  EXPECT_EQ(PageData(R"({"name":"abc"})", limits), R"({"name":"abc"})");
  EXPECT_EQ(PageData(R"({"name":"abcd"})", limits),
            "{\"name\":\"abc\xe2\x80\xa6\"}");
  // An escape counts as one character, and so does a multi-byte character.
  EXPECT_EQ(PageData("{\"name\":\"\\u0000\\n\xc3\xa4y\"}", limits),
            "{\"name\":\"\\u0000\\n\xc3\xa4\xe2\x80\xa6\"}");
  EXPECT_EQ(PageData(R"({"evidence":"abcdef"})", limits),
            R"({"evidence":"abcdef"})");
  EXPECT_EQ(PageData(R"({"also":["abcdef"],"x":"abcd"})", limits),
            "{\"also\":[\"abcdef\"],\"x\":\"abc\xe2\x80\xa6\"}");
}

TEST(PageDataTest, EndsListsOfStepsAlone) {
  const PageLimits limits{.rows = 2};
  EXPECT_EQ(
      PageData(
          R"({"step_times":[{"a":[1,2,3]},{"a":5},{"a":"}]"}],"b":[1,2,3]})",
          limits),
      R"({"step_times":[{"a":[1,2,3]},{"a":5}],"b":[1,2,3]})");
  EXPECT_EQ(
      PageData(R"({"step_times":[{"step_times":[1,2,3]}],"c":1})", limits),
      R"({"step_times":[{"step_times":[1,2]}],"c":1})");
}

TEST(PageDataTest, RoundsFractionsAndNothingElse) {
  EXPECT_EQ(PageData("[0.1234567891,1769868309123456789,12345678.9,-1.5]", {}),
            "[0.1234568,1769868309123456789,1.234568e+07,-1.5]");
}

TEST(HtmlTextTest, IsTextWhateverItHolds) {
  EXPECT_EQ(HtmlText("<a href='x\">&\x01\n", 100),
            "&lt;a href=&#39;x&quot;&gt;&amp; \n");
  EXPECT_EQ(HtmlText("ab\xc3\xa4", 3), "ab");
  EXPECT_EQ(HtmlText("ab\xc3\xa4", 4), "ab\xc3\xa4");
}

TEST(PageTest, EmbedsTheReportsJson) {
  const Trace trace = Simulate({.batch_ms = 40, .ops = Ops(40, 6)}).trace;
  const std::string page = PageOf(trace);
  EXPECT_EQ(Block(page, "report"), PageData(ToJson(Analyze(trace)), {}));
  EXPECT_EQ(page, PageOf(trace));
}

TEST(PageTest, FetchesAndRunsNothingButItsOwnScript) {
  const std::string page = PageOf(SimulatedTraining({.gpu = true}));
  EXPECT_THAT(page, HasSubstr("content=\"default-src 'none'; script-src " +
                              std::string(PageScriptHash()) + "; style-src " +
                              std::string(PageStyleHash())));
  EXPECT_THAT(page, HasSubstr(std::string(PageScript())));
  const std::string own = std::string(PageScript()) + std::string(PageStyle());
  for (const char* never :
       {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
        "new Function", "fetch(", "XMLHttp", "import(", "@import", "url(",
        "</script"}) {
    EXPECT_THAT(own, Not(HasSubstr(never)));
  }
  // The only address is SVG's namespace.
  EXPECT_EQ(CountOf(own, "http:"), 1u);
  EXPECT_EQ(CountOf(own, "https:"), 0u);
}

// Returns a report in which every text is `text`.
Report ReportOfTexts(const std::string& text, size_t steps) {
  Report report;
  report.run.name = report.run.source = report.run.host = text;
  report.run.devices.push_back({.name = text});
  report.has_gpu = true;
  report.steps = {.count = static_cast<int64_t>(steps),
                  .steady = static_cast<int64_t>(steps),
                  .mean_ms = 100};
  for (size_t cause = 0; cause < kCauses; ++cause) {
    report.time_split_ms[CauseKey(static_cast<Cause>(cause))] = 100.0 / 17;
  }
  for (size_t i = 0; i < steps; ++i) {
    report.step_times.push_back({.number = static_cast<int64_t>(i),
                                 .kind = "slow",
                                 .ms = 100.0 / 3 + i,
                                 .why = i < 3 ? text : "x",
                                 .time_split_ms = report.time_split_ms});
  }
  Finding finding{.id = "sync-data-loading", .evidence = text};
  finding.status = FindingStatus::kWarning;
  finding.severity = FindingSeverity::kHigh;
  finding.gain_kind = GainKind::kPredicted;
  finding.where = finding.assumption = finding.fix_cpp = finding.fix_python =
      finding.wrong_if = finding.reference = text;
  finding.examples.assign(3, {.what = text});
  report.findings.push_back(finding);
  report.top_ops.push_back({.name = text});
  report.modules.push_back({.name = text, .class_name = text});
  report.lines.push_back({.name = text});
  report.critical_path.push_back({.category = "compute", .name = text});
  report.memory.push_back({.device = text, .op = text});
  report.losses.push_back({.name = text, .detail = text});
  return report;
}

PageDetails DetailsOfTexts(const std::string& text) {
  PageDetails details;
  details.names.push_back(text);
  details.steps.push_back(
      {.number = 0,
       .end_ns = 1000,
       .lanes = {{.name = text,
                  .blocks = {{.length_us = 1, .cause = "data", .name = 1}}}}});
  details.kernels.push_back({.name = text, .kind = text});
  details.collectives.push_back({.kind = text, .group = text});
  details.memory.push_back({.device = text, .owners = {{.op = text}}});
  details.loaders.push_back({.name = text, .kind = text});
  return details;
}

TEST(PageTest, NoNameBecomesMarkup) {
  const std::string plain = ToHtml(ReportOfTexts("x", 3), DetailsOfTexts("x"));
  for (const std::string& text :
       {std::string("<script>alert(1)</script>"), std::string("<!--<script>"),
        std::string("\"><img src=x onerror=alert(1)>"), std::string("</title>"),
        std::string("</noscript></pre><b>"), std::string("a\0b\xff\xfe", 5),
        std::string("\xe2\x80\xa8'`${}\\")}) {
    const std::string page =
        ToHtml(ReportOfTexts(text, 3), DetailsOfTexts(text));
    EXPECT_EQ(CountOf(page, "<"), CountOf(plain, "<")) << text;
    EXPECT_EQ(CountOf(page, "-->"), CountOf(plain, "-->")) << text;
    EXPECT_EQ(page.find('\0'), std::string::npos);
    for (const char* id : {"report", "details", "words"}) {
      simdjson::dom::parser parser;
      simdjson::dom::object block;
      EXPECT_FALSE(parser.parse(Block(page, id)).get(block)) << id << text;
    }
    EXPECT_TRUE(simdjson::validate_utf8(page)) << text;
  }
}

TEST(PageTest, StaysSmallWhateverTheTextsAndSteps) {
  const std::string huge(1'000'000, '<');
  const std::string page =
      ToHtml(ReportOfTexts(huge, 1000), DetailsOfTexts(huge));
  EXPECT_LE(page.size(), 600'000u);
  EXPECT_THAT(page, EndsWith("</html>\n"));
  simdjson::dom::parser parser;
  simdjson::dom::object block;
  EXPECT_FALSE(parser.parse(Block(page, "report")).get(block));
}

TEST(PageTest, AThousandRanksFitInFiveMegabytes) {
  Report report = ReportOfTexts("a name", 300);
  for (int32_t rank = 0; rank < 1000; ++rank) {
    report.ranks.rows.push_back(
        {.rank = rank,
         .source = "/data/run/trace/rank" + std::to_string(rank) + ".json.gz",
         .step_ms = 100.0 / 3,
         .late_ms = rank / 7.0,
         .clock_offset_us = rank * 1e5 / 3,
         .time_split_ms = report.time_split_ms});
    report.ranks.groups.push_back({.ranks = {0, rank}, .parallelism = "data"});
    report.ranks.waits.push_back(
        {.rank = rank, .waits_for = 999 - rank, .ms = 1.0 / 3});
  }
  const std::string page = ToHtml(report, {});
  EXPECT_LE(page.size(), 5'000'000u);
  // No rank is left out.
  EXPECT_THAT(Block(page, "report"), HasSubstr("/rank999.json.gz"));
}

TEST(PageTest, EveryStepOfALongRunIsThere) {
  const std::string page = ToHtml(ReportOfTexts("x", 1000), {});
  simdjson::dom::parser parser;
  simdjson::dom::object report;
  ASSERT_FALSE(parser.parse(Block(page, "report")).get(report));
  EXPECT_EQ(simdjson::dom::array(report["step_times"]).size(), 1000u);
  EXPECT_LE(page.size(), 600'000u);
}

TEST(PageTest, ShowsTwoRuns) {
  const Comparison comparison = Compare(
      Simulate({.batch_ms = 37, .ops = Ops(40, 2.5), .cores = 8}).trace,
      Simulate({.batch_ms = 37, .ops = Ops(40, 2.5), .workers = 1, .cores = 8})
          .trace);
  const std::string page = ToHtml(comparison);
  EXPECT_EQ(Block(page, "comparison"), PageData(ToJson(comparison), {}));
  EXPECT_THAT(Block(page, "words"), HasSubstr("ms faster per step"));
}

TEST(PageTest, EveryCauseHasWords) {
  const std::string words = Block(PageOf(Simulate({}).trace), "words");
  for (size_t cause = 0; cause < kCauses; ++cause) {
    EXPECT_THAT(
        words,
        HasSubstr("\"" + std::string(CauseKey(static_cast<Cause>(cause))) +
                  "\":"));
    // The script and the style sheet have a colour for the cause.
    EXPECT_THAT(
        std::string(PageStyle()),
        HasSubstr(".c-" + std::string(CauseKey(static_cast<Cause>(cause))) +
                  " "));
    EXPECT_THAT(
        std::string(PageScript()),
        HasSubstr("'" + std::string(CauseKey(static_cast<Cause>(cause))) +
                  "'"));
  }
}

TEST(PageWordsTest, TheHeadlineSaysWhatToExpect) {
  const Report slow =
      Analyze(Simulate({.batch_ms = 100, .ops = Ops(40, 5), .cores = 8}).trace);
  ASSERT_EQ(slow.plan.ids.size(), 2u);
  EXPECT_THAT(HeadlineInWords(slow),
              HasSubstr("2 changes are predicted to cut the step from "));
  const Report healthy =
      Analyze(Simulate({.ops = Ops(40, 5), .threads = 2}).trace);
  EXPECT_THAT(HeadlineInWords(healthy), HasSubstr("Healthy: "));
  Report bound;
  bound.steps = {.count = 3, .steady = 3, .mean_ms = 10};
  bound.findings.push_back({.id = "fp64-compute",
                            .severity = FindingSeverity::kHigh,
                            .gain_kind = GainKind::kBound,
                            .gain = {.expected_ms = 4}});
  EXPECT_EQ(
      HeadlineInWords(bound),
      "Up to 4.00 of 10.0 ms per step can be gained: start with fp64-compute.");
  // A plan that saves less comes second.
  bound.plan = {.ids = {"launch-bound"}, .step_before_ms = 10};
  bound.plan.step_after_ms = 9;
  EXPECT_THAT(HeadlineInWords(bound), HasSubstr("start with fp64-compute."));
  bound.plan.step_after_ms = 7;
  EXPECT_THAT(HeadlineInWords(bound), HasSubstr("1 change is predicted"));
  bound.plan = {};
  // A predicted gain that is in no plan is not an upper bound.
  bound.findings[0].gain_kind = GainKind::kPredicted;
  bound.findings[0].gain = {.expected_ms = 4, .low_ms = 2, .high_ms = 5};
  EXPECT_EQ(HeadlineInWords(bound),
            "One change is predicted to gain 4.00 of 10.0 ms per step (roughly "
            "2.00 to 5.00): start with fp64-compute.");
  EXPECT_EQ(HeadlineInWords(Report()),
            "No steps were found, so there are no times per step. Call Step() "
            "once per iteration (prof.step() in Python).");
}

}  // namespace
}  // namespace stepscope::page_test
