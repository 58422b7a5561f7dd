// A Comparison as text and as Markdown.
#include <stepscope/compare.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "report/markdown_escape.h"
#include "report/text_page.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kRowsShown = 8;
constexpr size_t kMostNameColumns = 56;
constexpr size_t kLeastNameColumns = 8;
constexpr size_t kRowIndent = 2;
constexpr size_t kNumberColumns = 10;
constexpr size_t kCallColumns = 16;
constexpr size_t kLabelColumns = 10;

std::string Signed(double ms) { return (ms > 0 ? "+" : "") + Number(ms); }

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(text[0]));
  return text;
}

// The rows with the second trace's times and calls per as many samples as a
// step of the first one has.
std::vector<ComparedTime> Normalised(std::vector<ComparedTime> rows,
                                     double scale) {
  for (ComparedTime& row : rows) {
    row.after_ms *= scale;
    row.after_calls *= scale;
  }
  // The rows were sorted before the times changed.
  if (scale != 1) {
    std::ranges::stable_sort(rows, {}, [](const ComparedTime& row) {
      return -std::abs(row.after_ms - row.before_ms);
    });
  }
  return rows;
}

std::string SideText(const RunInfo& run, const StepSpread& spread) {
  std::string text = run.source.empty() ? run.name : run.source;
  if (spread.steps == 0) return text + "  no steady steps";
  text += "  " + Count(spread.steps, "steady step") + ", median " +
          Milliseconds(spread.median_ms) + " (" + Number(spread.min_ms) +
          " to " + Number(spread.max_ms) + ", mean " + Number(spread.mean_ms) +
          ")";
  if (spread.batch_size > 0) {
    text += ", batch " + std::to_string(spread.batch_size);
  }
  return text;
}

// "3.81 ms faster per step (95 % interval 3.10 to 5.86): 18.3 to 14.5 ms,
// 1.3x". The interval has the direction of the words: of a loss, low is small.
std::string ChangeText(const Gain& gain, const char* interval, double before_ms,
                       double after_ms) {
  const bool slower = gain.expected_ms < 0;
  std::string text =
      Milliseconds(std::abs(gain.expected_ms)) +
      (slower ? " slower" : " faster") + " per step (" + interval + " " +
      Number(slower ? -gain.high_ms : gain.low_ms) + " to " +
      Number(slower ? -gain.low_ms : gain.high_ms) + "): " + Number(before_ms) +
      " to " + Milliseconds(after_ms);
  if (after_ms > 0) text += ", " + Factor(before_ms / after_ms);
  return text;
}

// A line of the verdict. Without a label it continues the line before.
struct VerdictLine {
  std::string label, text;
};

// `after_ms` is the measured step, normalised to the first batch size.
void AddPrediction(const Comparison& c, double after_ms,
                   std::vector<VerdictLine>& lines) {
  std::vector<std::string> changes = c.changed_settings;
  changes.insert(changes.end(), c.resolved_findings.begin(),
                 c.resolved_findings.end());
  changes.insert(changes.end(), c.reduced_findings.begin(),
                 c.reduced_findings.end());
  const std::string made = "; changes: " + Listed(changes) + ".";
  if (c.predicted_kind == GainKind::kBound) {
    lines.push_back({"predicted", "at most " +
                                      Milliseconds(c.predicted.expected_ms) +
                                      " faster per step" + made});
    return;
  }
  // Against the first trace's median, as the measured change is.
  const double predicted_ms = c.before.median_ms - c.predicted.expected_ms;
  lines.push_back(
      {"predicted",
       ChangeText(c.predicted, c.predicted.pairs > 0 ? "likely" : "a hint:",
                  c.before.median_ms, predicted_ms) +
           made});
  if (after_ms <= 0) return;
  // If the intervals overlap, the measurement does not contradict the
  // prediction.
  const bool overlap = c.measured.high_ms >= c.predicted.low_ms &&
                       c.measured.low_ms <= c.predicted.high_ms;
  const double error = predicted_ms / after_ms - 1;
  lines.push_back({"", "The predicted step is " + Percent(std::abs(error)) +
                           (error < 0 ? " shorter" : " longer") +
                           " than the measured one. The measured change is " +
                           (overlap ? "within" : "outside") +
                           " the likely range."});
}

void AddVerdict(const Comparison& c, std::vector<VerdictLine>& lines) {
  const double after_ms = c.after.median_ms * c.batch_scale;
  lines.push_back(
      {"measured",
       ChangeText(c.measured, "95 % interval", c.before.median_ms, after_ms) +
           (c.significant ? "." : "; no significant difference.")});
  if (c.batch_normalised) {
    lines.push_back(
        {"", "The batches differ: a step of the second trace has " +
                 Times(1 / c.batch_scale) +
                 " times the samples, so its times, here and below, "
                 "are per as many samples as a step of the first has."});
  }
  if (!c.doubt.empty()) {
    lines.push_back({"doubt", "Are these two runs of one program? " +
                                  Capitalised(c.doubt) + "."});
  }
  if (c.predicted_kind != GainKind::kNone) {
    AddPrediction(c, after_ms, lines);
  } else if (!c.doubt.empty()) {
    lines.push_back({"predicted", "nothing, because of the doubt."});
  } else if (c.changed_settings.empty()) {
    lines.push_back(
        {"predicted",
         "nothing: no finding of the first trace is gone, and no setting is "
         "known to differ."});
  } else {
    lines.push_back(
        {"predicted", "nothing for " + Listed(c.changed_settings) +
                          ": the first trace lacks the data to predict it."});
  }
}

std::vector<VerdictLine> VerdictOf(const Comparison& c) {
  std::vector<VerdictLine> lines = {
      {"before", SideText(c.before_run, c.before)},
      {"after", SideText(c.after_run, c.after)}};
  if (c.why_not.empty()) {
    AddVerdict(c, lines);
  } else {
    lines.push_back({"", "The steps cannot be compared: " + c.why_not + "."});
  }
  return lines;
}

bool HasGpu(const Comparison& c) {
  return !c.kernels.empty() || !c.before_run.devices.empty();
}

// False for a difference that would be printed as 0.
bool Differs(const ComparedTime& row) {
  return Number(row.after_ms - row.before_ms) != "0";
}

// The columns of a table in `width` columns: without the calls where names
// would have no room beside them.
struct TableColumns {
  size_t name = 0;
  bool has_calls = false;
};
TableColumns ColumnsIn(int width, bool causes) {
  constexpr int kLeastWithCalls = 72;
  const bool has_calls = !causes && width >= kLeastWithCalls;
  const size_t others =
      kRowIndent + 3 * kNumberColumns + (has_calls ? kCallColumns : 0);
  const size_t all = std::max(static_cast<size_t>(std::max(width, 0)),
                              others + kLeastNameColumns);
  return {std::min(all - others, kMostNameColumns), has_calls};
}

void AppendTextTable(const char* title, const std::vector<ComparedTime>& rows,
                     bool causes, bool has_gpu, int width, TextPage& page) {
  if (causes ? std::ranges::none_of(rows, Differs) : rows.empty()) return;
  const TableColumns columns = ColumnsIn(width, causes);
  const size_t title_columns = columns.name + kRowIndent;
  page.Line();
  page.Line(PadRight(Clipped(title, title_columns), title_columns) +
            PadLeft("before", kNumberColumns) +
            PadLeft("after", kNumberColumns) +
            PadLeft("change", kNumberColumns) +
            (columns.has_calls ? PadLeft("calls", kCallColumns) : ""));
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const ComparedTime& row = rows[i];
    const double change = row.after_ms - row.before_ms;
    if (causes && !Differs(row)) continue;
    const std::string name =
        causes ? CauseInWords(row.name, has_gpu) : row.name;
    std::string line = std::string(kRowIndent, ' ') +
                       PadRight(Clipped(name, columns.name), columns.name) +
                       PadLeft(Number(row.before_ms), kNumberColumns) +
                       PadLeft(Number(row.after_ms), kNumberColumns) +
                       PadLeft(Signed(change), kNumberColumns);
    if (columns.has_calls) {
      line +=
          PadLeft(Number(row.before_calls) + " > " + Number(row.after_calls),
                  kCallColumns);
    }
    page.Line(line);
  }
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
                    : MarkdownCode(Clipped(row.name, kMostNameColumns),
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
  add("ms per step, by cause", Normalised(c.causes, c.batch_scale), true);
  add("by op (self time)", Normalised(c.ops, c.batch_scale), false);
  add("by kernel and copy", Normalised(c.kernels, c.batch_scale), false);
}

}  // namespace

std::string ToText(const Comparison& c, int width) {
  TextOptions options;
  options.width = width;
  TextPage page(options);
  for (const VerdictLine& line : VerdictOf(c)) {
    // A whole sentence stands alone where there is nothing to compare.
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
