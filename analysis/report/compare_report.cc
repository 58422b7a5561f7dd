#include <stepscope/compare.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "report/json_text.h"
#include "report/markdown_text.h"
#include "report/page.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kRowsShown = 8;
constexpr size_t kNameColumns = 56;
constexpr size_t kLabelColumns = 10;
// Runs of one program share more of their ops than this, by their time.
constexpr double kOneProgram = 0.5;

std::string Left(std::string text, size_t columns) {
  const size_t width = Columns(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}
std::string Right(const std::string& text, size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ') + text;
}

std::string Signed(double ms) { return (ms > 0 ? "+" : "") + Number(ms); }

std::string Clipped(std::string_view name) {
  std::string text = Printable(name);
  if (text.size() <= kNameColumns) return text;
  size_t cut = kNameColumns - 3;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) {
    --cut;
  }
  return text.substr(0, cut) + "...";
}

std::string SideInWords(const RunInfo& run, const StepSpread& spread) {
  std::string text = run.source.empty() ? run.name : run.source;
  if (spread.steps == 0) return text + "  no steady steps";
  text += "  " + Count(spread.steps, "steady step") + ", " +
          Milliseconds(spread.median_ms) + " in the middle (" +
          Number(spread.min_ms) + " to " + Number(spread.max_ms) + ", mean " +
          Number(spread.mean_ms) + ")";
  if (spread.batch_size > 0) {
    text += ", batch " + std::to_string(spread.batch_size);
  }
  return text;
}

// "won 49.8 ms", "lost 3.1 ms".
std::string WonInWords(double ms) {
  return (ms >= 0 ? "won " : "lost ") + Milliseconds(std::abs(ms));
}

std::string Join(const std::vector<std::string>& ids) {
  std::string text;
  for (const std::string& id : ids) text += (text.empty() ? "" : ", ") + id;
  return text;
}

// What is said of the whole: a label, or "" where the line before goes on.
struct Said {
  std::string label, text;
};

// `after_ms` is measured, for as many samples as a step of the first trace.
void AddPredicted(const Comparison& c, double after_ms,
                  std::vector<Said>& said) {
  const bool bound = c.predicted_kind == GainKind::kBound;
  const double after = c.before.median_ms - c.predicted.expected_ms;
  std::string text = bound ? "at most " + Milliseconds(c.predicted.expected_ms)
                           : WonInWords(c.predicted.expected_ms) + " (likely " +
                                 Number(c.predicted.low_ms) + " to " +
                                 Number(c.predicted.high_ms) + ") per step, " +
                                 Number(c.before.median_ms) + " to " +
                                 Milliseconds(after);
  std::vector<std::string> what = c.changed;
  what.insert(what.end(), c.made.begin(), c.made.end());
  said.push_back(
      {"predicted", text + ", for what is done now: " + Join(what) + "."});
  if (bound || after_ms <= 0) return;
  const bool meet = c.measured.high_ms >= c.predicted.low_ms &&
                    c.measured.low_ms <= c.predicted.high_ms;
  const double error = after / after_ms - 1;
  said.push_back({"", "The predicted step is " + Percent(std::abs(error)) +
                          (error < 0 ? " shorter" : " longer") +
                          " than the measured one; what was won is " +
                          (meet ? "within" : "outside") +
                          " the likely range."});
}

void AddVerdict(const Comparison& c, std::vector<Said>& said) {
  const double scale = c.per_sample
                           ? static_cast<double>(c.before.batch_size) /
                                 static_cast<double>(c.after.batch_size)
                           : 1;
  const double after_ms = c.after.median_ms * scale;
  std::string text = WonInWords(c.measured.expected_ms) + " per step, " +
                     Number(c.before.median_ms) + " to " +
                     Milliseconds(after_ms);
  if (after_ms > 0) text += " (" + Factor(c.before.median_ms / after_ms) + ")";
  text += "; resampling the steps gives " + Number(c.measured.low_ms) + " to " +
          Number(c.measured.high_ms) + " ms";
  if (!c.certain) text += ": no difference is certain";
  said.push_back({"measured", text + "."});
  if (c.per_sample) {
    said.push_back(
        {"", "The second is counted for as many samples as the first."});
  }
  // Advice that was followed may well leave few ops as they were.
  if (c.shared_ops >= 0 && c.shared_ops < kOneProgram && c.changed.empty() &&
      c.predicted_kind != GainKind::kPredicted) {
    said.push_back(
        {"doubt", "Ops that both traces have are only " +
                      Percent(c.shared_ops) +
                      " of one's time: are these two runs of one program?"});
  }
  if (c.predicted_kind == GainKind::kNone) {
    said.push_back({"predicted",
                    c.changed.empty()
                        ? "nothing: no advice for the first trace was followed."
                        : "nothing for " + Join(c.changed) +
                              ": the first trace does not tell."});
    return;
  }
  AddPredicted(c, after_ms, said);
}

std::vector<Said> InWords(const Comparison& c) {
  std::vector<Said> said = {{"before", SideInWords(c.before_run, c.before)},
                            {"after", SideInWords(c.after_run, c.after)}};
  if (c.why_not.empty()) {
    AddVerdict(c, said);
  } else {
    said.push_back({"", "Steps cannot be compared: " + c.why_not + "."});
  }
  return said;
}

bool HasGpu(const Comparison& c) {
  return !c.kernels.empty() || !c.before_run.devices.empty();
}

bool Differs(const Changed& row) {
  return Number(row.after_ms - row.before_ms) != "0";
}

void Table(const char* title, const std::vector<Changed>& rows, bool causes,
           bool has_gpu, Page& page) {
  if (causes ? std::ranges::none_of(rows, Differs) : rows.empty()) return;
  page.Line();
  page.Line(Left(title, kNameColumns + 2) + Right("before", 10) +
            Right("after", 10) + Right("change", 10) +
            (causes ? "" : Right("calls", 16)));
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const Changed& row = rows[i];
    const double change = row.after_ms - row.before_ms;
    if (causes && !Differs(row)) continue;
    std::string line =
        "  " +
        Left(causes ? CauseInWords(row.name, has_gpu) : Clipped(row.name),
             kNameColumns) +
        Right(Number(row.before_ms), 10) + Right(Number(row.after_ms), 10) +
        Right(Signed(change), 10);
    if (!causes) {
      line +=
          Right(Number(row.before_calls) + " > " + Number(row.after_calls), 16);
    }
    page.Line(line);
  }
}

void MarkdownTable(const char* title, const std::vector<Changed>& rows,
                   bool causes, bool has_gpu, std::string& text) {
  if (causes ? std::ranges::none_of(rows, Differs) : rows.empty()) return;
  text += std::string("\n| ") + title + " | before | after | change |" +
          (causes ? "" : " calls |") + "\n| --- | ---: | ---: | ---: |" +
          (causes ? "" : " ---: |") + "\n";
  for (size_t i = 0; i < std::min(rows.size(), kRowsShown); ++i) {
    const Changed& row = rows[i];
    if (causes && !Differs(row)) continue;
    text += "| " +
            (causes ? CauseInWords(row.name, has_gpu)
                    : MarkdownCode(Clipped(row.name), /*in_table=*/true)) +
            " | " + Number(row.before_ms) + " | " + Number(row.after_ms) +
            " | " + Signed(row.after_ms - row.before_ms) + " |";
    if (!causes) {
      text += " " + Number(row.before_calls) + " to " +
              Number(row.after_calls) + " |";
    }
    text += "\n";
  }
}

void WriteGain(const char* key, const Gain& gain, Json& json) {
  json.Key(key);
  json.Open('{');
  json.Field("expected", gain.expected_ms);
  json.Field("low", gain.low_ms);
  json.Field("high", gain.high_ms);
  json.Close('}');
}

void WriteSide(const char* key, const RunInfo& run, const StepSpread& spread,
               Json& json) {
  json.Key(key);
  json.Open('{');
  json.Field("source", run.source);
  json.Field("name", run.name);
  json.Field("steps", spread.steps);
  json.Field("mean_ms", spread.mean_ms);
  json.Field("median_ms", spread.median_ms);
  json.Field("min_ms", spread.min_ms);
  json.Field("max_ms", spread.max_ms);
  json.Field("batch_size", spread.batch_size);
  json.Close('}');
}

void WriteRows(const char* key, const std::vector<Changed>& rows, Json& json) {
  json.Key(key);
  json.Open('[');
  for (const Changed& row : rows) {
    json.Open('{');
    json.Field("name", row.name);
    json.Field("before_ms", row.before_ms);
    json.Field("after_ms", row.after_ms);
    json.Field("before_calls", row.before_calls);
    json.Field("after_calls", row.after_calls);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

std::string ToText(const Comparison& c) {
  TextOptions options;
  options.width = 110;
  Page page(options);
  for (const Said& said : InWords(c)) {
    // A whole sentence stands alone where there is nothing to compare.
    page.Wrapped(c.why_not.empty() || !said.label.empty()
                     ? Left(said.label, kLabelColumns)
                     : "",
                 said.text);
  }
  if (!c.why_not.empty()) return page.Take();
  const bool has_gpu = HasGpu(c);
  Table("ms per step, by cause", c.causes, true, has_gpu, page);
  Table("by op (own time)", c.ops, false, has_gpu, page);
  Table("by kernel and copy", c.kernels, false, has_gpu, page);
  if (!c.remaining.empty() || !c.appeared.empty()) page.Line();
  if (!c.remaining.empty()) page.Wrapped("still advised: ", Join(c.remaining));
  if (!c.appeared.empty()) page.Wrapped("advised now: ", Join(c.appeared));
  return page.Take();
}

std::string ToMarkdown(const Comparison& c) {
  std::string text = "### stepscope: before and after\n\n";
  for (const Said& said : InWords(c)) {
    const char* goes_on = c.why_not.empty() ? "  " : "\n";
    text += (said.label.empty() ? goes_on : "- **" + said.label + "** ") +
            MarkdownText(said.text) + "\n";
  }
  if (!c.why_not.empty()) return text;
  const bool has_gpu = HasGpu(c);
  MarkdownTable("ms per step, by cause", c.causes, true, has_gpu, text);
  MarkdownTable("by op (own time)", c.ops, false, has_gpu, text);
  MarkdownTable("by kernel and copy", c.kernels, false, has_gpu, text);
  if (!c.remaining.empty()) {
    text += "\nstill advised: " + MarkdownText(Join(c.remaining)) + "\n";
  }
  if (!c.appeared.empty()) {
    text += "\nadvised now: " + MarkdownText(Join(c.appeared)) + "\n";
  }
  return text;
}

std::string ToJson(const Comparison& c) {
  Json json;
  json.Open('{');
  json.Field("version", int32_t{2});
  WriteSide("before", c.before_run, c.before, json);
  WriteSide("after", c.after_run, c.after, json);
  json.Field("why_not", c.why_not);
  WriteGain("measured_ms", c.measured, json);
  json.Field("per_sample", c.per_sample);
  json.Field("certain", c.certain);
  json.Field("shared_ops", c.shared_ops);
  WriteGain("predicted_ms", c.predicted, json);
  json.Field("predicted_kind", GainName(c.predicted_kind));
  json.Texts("made", c.made);
  json.Texts("changed", c.changed);
  json.Texts("remaining", c.remaining);
  json.Texts("appeared", c.appeared);
  WriteRows("causes", c.causes, json);
  WriteRows("ops", c.ops, json);
  WriteRows("kernels", c.kernels, json);
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
