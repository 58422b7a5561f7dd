// The output of `stepscope list`: the runs of a folder, and for each window the
// main figures of its report.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/logdir.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct ListedWindow {
  RunWindow window;
  // The report of each rank, as JSON and as a page; "" if there is none.
  std::vector<std::string> advice;
  std::vector<std::string> pages;
  // From the first report; steps is -1 if there is no report.
  int64_t steps = -1;
  double step_ms = 0;
  std::string first_finding;  // "" if nothing is worth changing
  double first_gain_ms = 0;   // per step
  bool gain_is_bound = false;
};

struct ListedRun {
  FoundRun run;
  std::vector<ListedWindow> windows;
};

// Lists the runs of `dir`. Reports that cannot be read count as missing.
// Errors: those of RunsIn().
absl::StatusOr<std::vector<ListedRun>> ListRuns(const std::string& dir);

// As text for a terminal, and as one JSON object (docs/json.md, "list").
std::string ToText(const std::vector<ListedRun>& runs, const std::string& dir);
std::string ToJson(const std::vector<ListedRun>& runs, const std::string& dir);

}  // namespace stepscope
