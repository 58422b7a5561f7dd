#include "run_output.h"

#include <stepscope/analysis.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace stepscope {

RunOutput::RunOutput(std::shared_ptr<LogRun> log, std::string who,
                     std::shared_ptr<Errors> errors)
    : log_(std::move(log)), who_(std::move(who)), errors_(std::move(errors)) {}

void RunOutput::Write(const std::vector<StepLine>& lines) noexcept {
  if (log_ == nullptr || failed_ || lines.empty()) return;
  // Set first, so that an exception also ends the writing.
  failed_ = true;
  errors_->Guard("the step times were not written", [&] {
    const absl::Status status = Append(lines);
    failed_ = !status.ok();
    if (failed_) errors_->Add(status);
  });
}

absl::Status RunOutput::Append(const std::vector<StepLine>& lines) {
  const absl::StatusOr<std::string> path = log_->StepTimesPath();
  if (!path.ok()) return path.status();
  // Lines of JSON instead of one array, so that the file is valid at any
  // moment, even if the program is killed.
  std::string text;
  char line[160];
  for (const StepLine& step : lines) {
    const int length = std::snprintf(
        line, sizeof(line),
        "{\"step\": %lld, \"end_ns\": %lld, \"ms\": %.6f, "
        "\"recorded\": %s}\n",
        static_cast<long long>(step.number),
        static_cast<long long>(step.end_ns),
        static_cast<double>(step.ns) * 1e-6, step.off ? "false" : "true");
    text.append(line, static_cast<size_t>(length));
  }
  // "e": child processes of the program must not inherit the file.
  std::FILE* const file = std::fopen(path->c_str(), "ae");
  bool ok = file != nullptr &&
            std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = errno;
  if (file != nullptr && std::fclose(file) != 0) {
    ok = false;
    error = errno;
  }
  if (ok) return absl::OkStatus();
  return absl::ErrnoToStatus(error, "cannot write " + *path);
}

void RunOutput::Plan(const RunTimes& times, StallRecorder& stalls) noexcept {
  errors_->Guard("no stall was chosen to be recorded",
                 [&] { stalls.Plan(AnalyzeRun(times), times.end_step()); });
}

void RunOutput::SayStatus(const RunTimes& times) noexcept {
  errors_->Guard("the status of the run was not shown", [&] {
    const std::string text = StatusText(AnalyzeRun(times), times.steps);
    if (!text.empty()) Say(who_ + text);
  });
}

}  // namespace stepscope
