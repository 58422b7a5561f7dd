#include "run_list.h"

#include <simdjson.h>
#include <stepscope/printable.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "analysed_traces.h"
#include "report/json_text.h"
#include "report/layout/text_page.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kWindowColumns = 6;

// Fills in the figures of the report at `path`. If it cannot be read, leaves
// `listed` unchanged.
void ReadReport(const std::string& path, ListedWindow& listed) {
  simdjson::dom::parser parser;
  simdjson::dom::element report;
  // Set both figures or none, so that a damaged report does not look like one
  // without steps.
  int64_t steps = 0;
  if (parser.load(path).get(report) || report["steps"]["count"].get(steps) ||
      report["steps"]["mean_ms"].get(listed.step_ms)) {
    return;
  }
  listed.steps = steps;
  simdjson::dom::array findings;
  if (report["findings"].get(findings)) return;
  for (const simdjson::dom::element finding : findings) {
    std::string_view id, severity, kind;
    if (finding["id"].get(id) || finding["severity"].get(severity) ||
        finding["gain_kind"].get(kind) || severity == "note" ||
        kind == "none" ||
        finding["gain_ms_per_step"]["expected"].get(listed.first_gain_ms)) {
      continue;
    }
    listed.first_finding = std::string(id);
    listed.gain_is_bound = kind == "bound";
    return;
  }
  listed.first_gain_ms = 0;
}

// Returns ".../advice/rank3.html" for ".../advice/rank3.json" if that file
// exists.
std::string PageBeside(const std::string& advice) {
  if (advice.empty()) return "";
  const std::filesystem::path page =
      std::filesystem::path(advice).replace_extension(".html");
  std::error_code error;
  return std::filesystem::is_regular_file(page, error) ? page.string() : "";
}

ListedWindow Look(RunWindow window) {
  ListedWindow listed;
  // Of a job with several ranks, the report of all of them.
  const auto job = std::filesystem::path(window.folder) / "report.json";
  std::error_code error;
  if (std::filesystem::is_regular_file(job, error)) {
    ReadReport(job.string(), listed);
  }
  for (const std::string& trace : window.traces) {
    listed.advice.push_back(AdviceOf(trace));
    listed.pages.push_back(PageBeside(listed.advice.back()));
    // Else the first readable report is used for all ranks of the window.
    if (listed.steps < 0 && !listed.advice.back().empty())
      ReadReport(listed.advice.back(), listed);
  }
  listed.window = std::move(window);
  return listed;
}

// Returns "2026_01_31_14_05_09" in the usual form for people.
std::string StartInWords(std::string start) {
  if (start.empty()) return start;
  start[4] = start[7] = '-';
  start[10] = ' ';
  start[13] = start[16] = ':';
  return start;
}

std::string WindowText(const ListedWindow& listed, std::string_view unit) {
  // `unit` is "rank" only for a profile's own folder, because only such a
  // folder is certain to have the ranks of one job.
  std::string text =
      Count(static_cast<int64_t>(listed.window.traces.size()), unit);
  if (listed.steps < 0)
    return text + ", no report yet: stepscope analyze " + listed.window.folder;
  text += ", " + Count(listed.steps, "step");
  if (listed.steps == 0) return text;
  text += " of " + Milliseconds(listed.step_ms);
  if (listed.first_finding.empty()) return text + "; nothing to change";
  return text + "; first: " + listed.first_finding + ", " +
         (listed.gain_is_bound ? "at most " : "") +
         Milliseconds(listed.first_gain_ms) + " per step";
}

void Write(const ListedWindow& listed, JsonText& json) {
  json.Open('{');
  json.Field("cycle", listed.window.cycle);
  json.Field("folder", listed.window.folder);
  json.Texts("traces", listed.window.traces);
  json.Texts("advice", listed.advice);
  json.Texts("pages", listed.pages);
  json.Field("steps", listed.steps);
  json.Field("step_ms", listed.step_ms);
  json.Field("first_finding", listed.first_finding);
  json.Field("first_gain_ms_per_step", listed.first_gain_ms);
  json.Field("gain_kind", listed.first_finding.empty() ? "none"
                          : listed.gain_is_bound       ? "bound"
                                                       : "predicted");
  json.Close('}');
}

}  // namespace

absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& dir) {
  absl::StatusOr<std::vector<FoundRun>> runs = RunsIn(dir);
  if (!runs.ok()) return runs.status();
  std::vector<ListedRun> list;
  for (FoundRun& run : *runs) {
    ListedRun listed;
    for (RunWindow& window : run.windows)
      listed.windows.push_back(Look(std::move(window)));
    listed.run = std::move(run);
    list.push_back(std::move(listed));
  }
  return list;
}

std::string ToText(const std::vector<ListedRun>& runs, const std::string& dir) {
  std::string text = Printable(dir) + ": " +
                     Count(static_cast<int64_t>(runs.size()), "run") + "\n";
  for (const ListedRun& listed : runs) {
    const FoundRun& run = listed.run;
    text += "\n" + Printable(run.name.empty() ? run.folder : run.name);
    if (!run.start.empty()) text += "  " + StartInWords(run.start);
    text += "  " + Printable(run.folder) + "\n";
    const char* unit = run.log_dir.empty() ? "trace" : "rank";
    if (listed.windows.empty()) text += "  no window has been written yet\n";
    for (const ListedWindow& window : listed.windows) {
      const std::string cycle = window.window.cycle < 0
                                    ? ""
                                    : "c" + std::to_string(window.window.cycle);
      text += "  " + PadRight(cycle, kWindowColumns - 2) + "  " +
              Printable(WindowText(window, unit)) + "\n";
    }
  }
  return text;
}

std::string ToJson(const std::vector<ListedRun>& runs, const std::string& dir) {
  JsonText json;
  json.Open('{');
  json.Field("version", 1);
  json.Field("dir", dir);
  json.Key("runs");
  json.Open('[');
  for (const ListedRun& listed : runs) {
    json.Open('{');
    json.Field("name", listed.run.name);
    json.Field("start", listed.run.start);
    json.Field("folder", listed.run.folder);
    json.Field("log_dir", listed.run.log_dir);
    json.Key("windows");
    json.Open('[');
    for (const ListedWindow& window : listed.windows) Write(window, json);
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
