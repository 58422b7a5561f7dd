// A Report, or a Comparison, as one HTML file: data, a script that draws the
// data, and a style sheet.
//
// Names in a trace are untrusted. They reach the page as JSON in a data block,
// in which no character can end the block (page_data.h), and the script turns
// them into text nodes, never into markup. If that failed, the page's
// Content-Security-Policy would still allow only the page's own script, and no
// requests.
#include <stepscope/analysis.h>
#include <stepscope/page.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "report/json_text.h"
#include "report/page/details_json.h"
#include "report/page/page_assets.h"
#include "report/page/page_data.h"
#include "report/page/page_words.h"

namespace stepscope {
namespace {

// A page of this size can be mailed. Each further rank adds a row to every
// table, so the limit grows with the number of ranks.
constexpr size_t kMostBytes = 600'000;
constexpr size_t kMostBytesPerRank = 4'400;
// Limit of the text report for a browser without scripts.
constexpr size_t kMostPlainBytes = 12'000;
constexpr size_t kMostTitleBytes = 200;

// Limits to try in this order until the page fits. The last one is used in any
// case.
constexpr PageLimits kLimits[] = {{},
                                  {.sentence = 600, .name = 120, .rows = 400},
                                  {.sentence = 200, .name = 60, .rows = 150}};

void AppendData(std::string_view id, std::string_view json,
                const PageLimits& limits, std::string& page) {
  page += "<script type=\"application/json\" id=\"";
  page += id;
  page += "\">";
  page += PageData(json, limits);
  page += "</script>\n";
}

std::string Head(std::string_view title) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; script-src ";
  page += PageScriptHash();
  page += "; style-src ";
  page += PageStyleHash();
  page +=
      "; img-src data:; base-uri 'none'; form-action 'none'; "
      "require-trusted-types-for 'script'; trusted-types 'none'\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>";
  page += HtmlText(title, kMostTitleBytes);
  page += "</title>\n<style>";
  page += PageStyle();
  page += "</style>\n</head>\n<body>\n";
  return page;
}

// `plain` is the text report.
std::string Tail(std::string_view plain) {
  std::string page =
      "<main id=\"page\"><noscript><p>This page draws its "
      "figures with a script, which this browser does not run. "
      "The report as text:</p><pre>";
  page += HtmlText(plain, kMostPlainBytes);
  page += "</pre></noscript></main>\n<script>";
  page += PageScript();
  page += "</script>\n</body>\n</html>\n";
  return page;
}

template <typename Write>
std::string JsonOf(const Write& write) {
  JsonText json;
  write(json);
  return json.Take();
}

}  // namespace

std::string ToHtml(const Report& report, const PageDetails& details) {
  const std::string words =
      JsonOf([&](JsonText& json) { WriteWords(report, json); });
  const std::string own =
      JsonOf([&](JsonText& json) { WriteDetails(details, report, json); });
  const std::string json = ToJson(report);
  const std::string name =
      report.run.name.empty() ? report.run.source : report.run.name;
  const std::string head = Head(JsonText::ValidUtf8("stepscope: " + name));
  const std::string tail = Tail(JsonText::ValidUtf8(ToText(report, {})));
  const size_t ranks = std::max<size_t>(report.ranks.rows.size(), 1);
  const size_t most = kMostBytes + kMostBytesPerRank * (ranks - 1);
  std::string page;
  for (const PageLimits& limits : kLimits) {
    page = head;
    AppendData("report", json, limits, page);
    AppendData("details", own, limits, page);
    AppendData("words", words, limits, page);
    page += tail;
    if (page.size() <= most) break;
  }
  return page;
}

std::string ToHtml(const Comparison& comparison) {
  const std::string words =
      JsonOf([&](JsonText& json) { WriteWords(comparison, json); });
  const std::string json = ToJson(comparison);
  const std::string head = Head("stepscope: before and after");
  const std::string tail = Tail(JsonText::ValidUtf8(ToText(comparison)));
  std::string page;
  for (const PageLimits& limits : kLimits) {
    page = head;
    AppendData("comparison", json, limits, page);
    AppendData("words", words, limits, page);
    page += tail;
    if (page.size() <= kMostBytes) break;
  }
  return page;
}

}  // namespace stepscope
