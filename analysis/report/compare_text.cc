// A Comparison as text and as Markdown.
#include <stepscope/compare.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "report/compare_words.h"
#include "report/layout/text_page.h"
#include "report/layout/text_table.h"
#include "report/markdown_escape.h"
#include "words/compiled_names.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kRowsShown = 8;
constexpr size_t kMostNameColumns = 56;
constexpr size_t kComparedNameColumns =
    kMostNameColumns + 2;  // with the indent
constexpr size_t kNumberColumns = 10;
constexpr size_t kCallColumns = 16;
constexpr size_t kLabelColumns = 10;

std::string Signed(double ms) { return (ms > 0 ? "+" : "") + Number(ms); }

// False for a difference that would be printed as 0.
bool Differs(const ComparedTime& row) {
  return Number(row.after_ms - row.before_ms) != "0";
}

void AppendTextTable(const char* title, const std::vector<ComparedTime>& rows,
                     bool causes, bool has_gpu, int width, TextPage& page) {
  // The causes are listed even if none has changed, and such a table would say
  // nothing.
  if (causes ? std::ranges::none_of(rows, Differs) : rows.empty()) return;
  std::vector<TableColumn> columns = {{"before", kNumberColumns},
                                      {"after", kNumberColumns},
                                      {"change", kNumberColumns}};
  if (!causes) columns.push_back({"calls", kCallColumns, /*spare=*/1});
  TextTable table(title, kComparedNameColumns, std::move(columns));
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const ComparedTime& row = rows[i];
    if (causes && !Differs(row)) continue;
    std::vector<std::string> cells = {Number(row.before_ms),
                                      Number(row.after_ms),
                                      Signed(row.after_ms - row.before_ms)};
    if (!causes) {
      cells.push_back(Number(row.before_calls) + " > " +
                      Number(row.after_calls));
    }
    table.Add("  " + (causes ? CauseInWords(row.name, has_gpu)
                             : WithFusedOps(row.name)),
              std::move(cells));
  }
  page.Line();
  for (const std::string& line : table.Lines(width)) page.Line(line);
}

void AppendMarkdownTable(const char* title,
                         const std::vector<ComparedTime>& rows, bool causes,
                         bool has_gpu, std::string& text) {
  if (causes ? std::ranges::none_of(rows, Differs) : rows.empty()) return;
  text += std::string("\n| ") + title + " | before | after | change |" +
          (causes ? "" : " calls |") + "\n| --- | ---: | ---: | ---: |" +
          (causes ? "" : " ---: |") + "\n";
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const ComparedTime& row = rows[i];
    if (causes && !Differs(row)) continue;
    text += "| " +
            (causes ? CauseInWords(row.name, has_gpu)
                    : MarkdownCode(
                          Clipped(WithFusedOps(row.name), kMostNameColumns),
                          /*in_table=*/true)) +
            " | " + Number(row.before_ms) + " | " + Number(row.after_ms) +
            " | " + Signed(row.after_ms - row.before_ms) + " |";
    if (!causes) {
      text += " " + Number(row.before_calls) + " to " +
              Number(row.after_calls) + " |";
    }
    text += "\n";
  }
}

// Calls add(title, rows, causes) for each table.
template <typename Add>
void ForEachTable(const Comparison& c, const Add& add) {
  add("mean ms per step, by cause", Normalised(c.causes, c.batch_scale), true);
  add("by op (self time)", Normalised(c.ops, c.batch_scale), false);
  add("by kernel and copy", Normalised(c.kernels, c.batch_scale), false);
  add("by module (self time)", Normalised(c.modules, c.batch_scale), false);
}

}  // namespace

std::string ToText(const Comparison& c, int width) {
  TextOptions options;
  options.width = width;
  TextPage page(options);
  for (const VerdictLine& line : VerdictOf(c)) {
    // If nothing can be compared, the line is a whole sentence without a label.
    page.Wrapped(c.why_not.empty() || !line.label.empty()
                     ? PadRight(line.label, kLabelColumns)
                     : "",
                 line.text);
  }
  if (!c.why_not.empty()) return page.Take();
  const bool has_gpu = HasGpu(c);
  ForEachTable(c, [&](const char* title, const auto& rows, bool causes) {
    AppendTextTable(title, rows, causes, has_gpu, width, page);
  });
  if (!c.remaining_findings.empty() || !c.new_findings.empty()) page.Line();
  if (!c.remaining_findings.empty())
    page.Wrapped("remaining findings: ", Listed(c.remaining_findings));
  if (!c.new_findings.empty())
    page.Wrapped("new findings: ", Listed(c.new_findings));
  return page.Take();
}

std::string ToMarkdown(const Comparison& c) {
  std::string text = "### stepscope: before and after\n\n";
  for (const VerdictLine& line : VerdictOf(c)) {
    // Blanks in front make the line a part of the list item above it.
    const char* continued = c.why_not.empty() ? "  " : "\n";
    text += (line.label.empty() ? continued : "- **" + line.label + "** ") +
            MarkdownText(line.text) + "\n";
  }
  if (!c.why_not.empty()) return text;
  const bool has_gpu = HasGpu(c);
  ForEachTable(c, [&](const char* title, const auto& rows, bool causes) {
    AppendMarkdownTable(title, rows, causes, has_gpu, text);
  });
  if (!c.remaining_findings.empty()) {
    text +=
        "\nremaining findings: " + MarkdownText(Listed(c.remaining_findings)) +
        "\n";
  }
  if (!c.new_findings.empty()) {
    text += "\nnew findings: " + MarkdownText(Listed(c.new_findings)) + "\n";
  }
  return text;
}

}  // namespace stepscope
