#include "jobs.h"

#include <absl/status/status.h>
#include <stepscope/compare.h>
#include <stepscope/run_identity.h>
#include <stepscope/top.h>
#include <stepscope/version.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysed_traces.h"
#include "analyze_output.h"
#include "errors.h"
#include "fleet_jobs.h"
#include "json_request.h"
#include "one_trace.h"
#include "report/json_text.h"
#include "rule_list.h"
#include "run_list.h"
#include "what_if/prediction.h"

namespace stepscope {
namespace {

// In the order of ReportFormat.
const std::vector<std::string>& Formats() {
  static const auto* const formats =
      new std::vector<std::string>{"text", "json", "markdown", "html"};
  return *formats;
}
// Indices of Formats().
constexpr size_t kJson = 1;
constexpr size_t kHtml = 3;
constexpr int kTopWidth = 0;  // no terminal: no column is left out

absl::StatusOr<std::string> RunAnalyze(JsonRequest& request) {
  Selection selection;
  selection.paths = request.Texts("paths");
  selection.run = request.Text("run");
  selection.cycle = static_cast<int32_t>(request.Whole("cycle", -1));
  selection.rank = static_cast<int32_t>(request.Whole("rank", -1));
  selection.machine.cores = static_cast<int32_t>(request.Whole("cores", -1));
  selection.machine.threads =
      static_cast<int32_t>(request.Whole("threads", -1));
  AnalysisOutput output{.format = static_cast<ReportFormat>(
                            request.Choice("format", Formats(), kJson)),
                        .verbose = request.Flag("verbose", false),
                        .to_stdout = false};
  JsonRequest about = request.Object("loss");
  const Loss loss{.name = about.Text("name"),
                  .detail = about.Text("detail"),
                  .count = about.Whole("count", 1),
                  .severity = Severity::kNote};
  // Check both objects before any file is read, so that a misspelled key is
  // reported at once.
  if (absl::Status s = about.Check(); !s.ok()) return s;
  if (absl::Status s = request.Check(); !s.ok()) return s;
  if (selection.paths.empty()) {
    return absl::InvalidArgumentError("analyze needs a trace file or a folder");
  }
  // If only some of the ranks can be read, a report of those is better than
  // none.
  std::string errors;
  const OnError keep = [&](const std::string& error) {
    errors += (errors.empty() ? "" : "; ") + error;
  };
  DrawnRank drawn;
  const bool page = output.format == ReportFormat::kHtml;
  AnalysedTraces traces = AnalyseAll(selection, keep, page ? &drawn : nullptr);
  output.page = std::move(drawn.details);
  if (traces.read.empty()) return absl::NotFoundError(errors);
  if (!errors.empty()) PrintError(errors);
  for (AnalysedTrace& trace : traces.read) {
    std::vector<Loss>& losses = trace.digest.report.losses;
    // The loss goes into every trace, in front of its own losses, because it is
    // not known yet which of the reports will be shown.
    if (!loss.name.empty()) losses.insert(losses.begin(), loss);
  }
  if (selection.rank >= 0 && !ChooseRank(selection.rank, traces, keep)) {
    return absl::NotFoundError(errors);
  }
  return AnalysisText(traces, output);
}

absl::StatusOr<std::string> RunCompare(JsonRequest& request) {
  const std::string a = request.Text("a");
  const std::string b = request.Text("b");
  const size_t format = request.Choice("format", Formats(), kJson);
  const auto rank = static_cast<int32_t>(request.Whole("rank", -1));
  if (absl::Status s = request.Check(); !s.ok()) return s;
  const absl::StatusOr<Trace> before = ReadRank(a, rank);
  if (!before.ok()) return before.status();
  const absl::StatusOr<Trace> after = ReadRank(b, rank);
  if (!after.ok()) return after.status();
  const Comparison comparison = Compare(*before, *after);
  if (format == kJson) return ToJson(comparison);
  if (format == kHtml) return ToHtml(comparison);
  return format == 2 ? ToMarkdown(comparison) : ToText(comparison);
}

absl::StatusOr<std::string> RunWhatIf(JsonRequest& request) {
  const std::string path = request.Text("path");
  std::vector<std::string> words;
  // Passed as words of `stepscope what-if`, because its parser knows the keys
  // and their values.
  for (const auto& [key, value] : request.Members("changes")) {
    words.emplace_back(key).append("=").append(value);
  }
  std::string findings;
  for (const std::string& id : request.Texts("findings")) {
    findings += (findings.empty() ? "" : ",") + id;
  }
  const size_t format = request.Choice("format", {"text", "json"}, kJson);
  if (absl::Status s = request.Check(); !s.ok()) return s;
  const absl::StatusOr<Change> change = ReadChange(findings, words);
  if (!change.ok()) return change.status();
  const absl::StatusOr<Trace> trace = ReadOneTrace(path);
  if (!trace.ok()) return trace.status();
  const Prediction prediction = Predict(*trace, *change);
  return format == kJson ? ToJson(prediction) : ToText(prediction);
}

absl::StatusOr<std::string> RunTop(JsonRequest& request) {
  const std::string path = request.Text("path");
  const size_t format = request.Choice("format", {"text", "json"}, kJson);
  const size_t order =
      request.Choice("by", {"self", "total", "calls", "gpu"}, 0);
  // All rows by default: the command's 20 rows are for a screen.
  const int64_t limit = request.Whole("limit", 0);
  const TopOptions options = {
      .order = static_cast<TopOrder>(order),
      .by_shape = request.Flag("by_shape", false),
      .limit = static_cast<size_t>(std::max<int64_t>(limit, 0))};
  if (absl::Status s = request.Check(); !s.ok()) return s;
  const absl::StatusOr<Trace> trace = ReadOneTrace(path);
  if (!trace.ok()) return trace.status();
  const std::vector<TopTable> tables = MakeTopTables(*trace, options);
  return format == kJson ? ToJson(tables) : ToText(tables, kTopWidth);
}

absl::StatusOr<std::string> RunList(JsonRequest& request) {
  const std::string dir = request.Text("dir");
  if (absl::Status s = request.Check(); !s.ok()) return s;
  const absl::StatusOr<std::vector<ListedRun>> runs = ListRuns(dir);
  if (!runs.ok()) return runs.status();
  return ToJson(*runs, dir);
}

std::string RankJson() {
  const RunIdentity identity = OwnIdentity();
  JsonText json;
  json.Open('{');
  json.Field("rank", identity.rank);
  json.Field("world_size", identity.world_size);
  json.Field("problem", identity.problem);
  json.Close('}');
  return json.Take();
}

}  // namespace

absl::StatusOr<std::string> RunJob(std::string_view name, const char* text) {
  absl::StatusOr<JsonRequest> request = JsonRequest::Parse(text);
  if (!request.ok()) return request.status();
  if (name == "analyze") return RunAnalyze(*request);
  if (name == "compare") return RunCompare(*request);
  if (name == "what_if") return RunWhatIf(*request);
  if (name == "top") return RunTop(*request);
  if (name == "list") return RunList(*request);
  if (name == "traces") return RunTraces(*request);
  if (name == "digest") return RunDigest(*request);
  if (name == "merge") return RunMerge(*request);
  if (name == "rules" || name == "rank" || name == "version") {
    // These jobs take no keys.
    if (absl::Status s = request->Check(); !s.ok()) return s;
    if (name == "rules") return RulesJson();
    return name == "rank" ? RankJson() : std::string(Version());
  }
  return absl::InvalidArgumentError("no job is called '" + std::string(name) +
                                    "'; there are version, analyze, compare, "
                                    "what_if, top, list, rules, rank, traces, "
                                    "digest and merge");
}

}  // namespace stepscope
