#include "window_output.h"

#include <stepscope/version.h>

#include <exception>
#include <utility>

namespace stepscope {

WindowOutput::WindowOutput(Options options, std::unique_ptr<LogRun> log,
                           std::shared_ptr<Errors> errors)
    : options_(std::move(options)),
      log_(std::move(log)),
      errors_(std::move(errors)) {}

RunInfo WindowOutput::MakeRunInfo() {
  RunInfo run;
  run.name = options_.name;
  run.host = options_.identity.host;
  run.rank = options_.identity.rank;
  run.world_size = options_.identity.world_size;
  run.local_ranks = options_.identity.local_ranks;
  run.run_id = log_ != nullptr ? log_->Run() : options_.identity.start;
  run.producer = std::string("stepscope ") + Version();
  run.record_shapes = options_.record_shapes;
  run.profile_memory = options_.profile_memory;
  run.with_stack = options_.with_stack;
  return run;
}

void WindowOutput::Take(ClosedWindow& window) noexcept {
  try {
    TakeOrThrow(window);
  } catch (const std::exception& error) {
    errors_->Add(absl::InternalError(
        std::string("a recorded window was lost while it was analysed: ") +
        error.what()));
  } catch (...) {
    errors_->Add(absl::InternalError(
        "a recorded window was lost while it was analysed"));
  }
}

// The report is printed before the files are written: they may take longer than
// the user waits, and may fail.
void WindowOutput::TakeOrThrow(ClosedWindow& window) {
  const Trace trace = window.Build(MakeRunInfo());
  const Report report = options_.parts.analyze(trace);

  LogPaths paths;
  if (log_ != nullptr) {
    absl::StatusOr<LogPaths> made =
        log_->PathsOf(static_cast<int32_t>(window.cycle()));
    if (made.ok()) {
      paths = *std::move(made);
    } else {
      errors_->Add(made.status());
    }
    if (!log_->disagreement().empty() && window.cycle() == 0) {
      Say(log_->disagreement());
    }
  }
  if (options_.print_report && options_.identity.rank == 0) {
    TextOptions text;
    text.color = ColorsOnStdout();
    text.width = StdoutColumns();
    text.details_path = paths.advice;
    if (!paths.advice.empty()) {
      text.view_command = "tensorboard --logdir " + log_->log_dir();
    }
    PrintReport(options_.parts.to_text(report, text));
  }
  if (options_.on_report) options_.on_report(trace, report);
  if (!paths.advice.empty()) WriteFiles(trace, report, paths);
}

void WindowOutput::WriteFiles(const Trace& trace, const Report& report,
                              const LogPaths& paths) {
  int failed = 0;
  int written = 0;
  absl::Status first;
  const auto note = [&](const absl::Status& status) {
    ++(status.ok() ? written : failed);
    if (first.ok()) first = status;
  };
  const WindowResult result{.trace = trace,
                            .report = report,
                            .paths = paths,
                            .log_dir = log_->log_dir()};
  for (const WindowFile& file : options_.parts.files) {
    if (!file.rank_0_only || options_.identity.rank == 0) {
      note(file.write(result));
    }
  }
  if (failed == 0) return;
  // One line, even if a full disk fails many files.
  errors_->Add(absl::Status(
      first.code(), std::to_string(failed) + " of " +
                        std::to_string(failed + written) +
                        " files were not written: " + MessageOf(first)));
}

}  // namespace stepscope
