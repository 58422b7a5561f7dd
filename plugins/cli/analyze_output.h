// The output of `stepscope analyze`: one report, one report of all ranks of a
// job, or one report per trace.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stepscope {

// In the order of the choices of --format.
enum class ReportFormat : uint8_t { kText, kJson, kMarkdown, kHtml };

struct AnalysedTrace {
  std::string path;
  std::string advice;   // path of the advice beside it; empty if there is none
  std::string log_dir;  // as the user gave it; empty if it was no log directory
  RankDigest digest;
  const Report& report() const { return digest.report; }
};

// The traces of a selection that could be read.
struct AnalysedTraces {
  std::vector<AnalysedTrace> read;
  // The ranks of the job that are not in `read`, for NameMissingRanks().
  std::map<int32_t, std::string> missing = {};
};

struct AnalysisOutput {
  ReportFormat format = ReportFormat::kText;
  bool verbose = false;
  bool to_stdout = true;  // colours and width are then those of the terminal
  PageDetails page = {};  // kHtml: what it shows of one rank
};

// Returns the report of all ranks if the traces belong to one job, else one
// report for each trace. REQUIRES: `results` is not empty.
std::vector<Report> ReportsOf(const std::vector<AnalysedTrace>& results);

// Returns the whole output. REQUIRES: traces.read is not empty. Errors:
// InvalidArgument for a page of traces that do not belong to one job.
absl::StatusOr<std::string> AnalysisText(const AnalysedTraces& traces,
                                         const AnalysisOutput& output);

}  // namespace stepscope
