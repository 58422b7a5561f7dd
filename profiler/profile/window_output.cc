#include "window_output.h"

#include <stepscope/version.h>

#include <new>
#include <utility>

namespace stepscope {
namespace {

// If one file needs too much memory, the others must still be written.
absl::Status Write(const WindowFile& file, const WindowResult& result) {
  try {
    return file.write(result);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  }
}

}  // namespace

WindowOutput::WindowOutput(Options options, std::shared_ptr<LogRun> log,
                           std::shared_ptr<Errors> errors)
    : options_(std::move(options)),
      log_(std::move(log)),
      log_dir_(log_ != nullptr ? log_->log_dir() : ""),
      errors_(std::move(errors)) {}

RunInfo WindowOutput::MakeRunInfo() {
  RunInfo run;
  run.name = options_.name;
  run.host = options_.identity.host;
  run.rank = options_.identity.rank;
  run.world_size = options_.identity.world_size;
  run.local_ranks = options_.identity.local_ranks;
  // Without a log directory there is no RUN. The start time still distinguishes
  // two runs.
  run.run_id = log_ != nullptr ? log_->Run() : options_.identity.start;
  run.producer = std::string("stepscope ") + Version();
  run.language = ProgramLanguage();
  run.record_shapes = options_.record_shapes;
  run.profile_memory = options_.profile_memory;
  run.with_stack = options_.with_stack;
  return run;
}

void WindowOutput::Take(ClosedWindow& window, const RunTimes& times) noexcept {
  errors_->Guard("a recorded window was lost while it was analysed",
                 [&] { TakeOrThrow(window, times); });
}

void WindowOutput::TakeStall(ClosedWindow& window,
                             StallRecorder& stalls) noexcept {
  errors_->Guard("the recording of a stall was lost", [&] {
    const Trace trace = window.Build(MakeRunInfo());
    stalls.Take(trace, options_.parts.analyze(trace, nullptr));
  });
  stalls.Release();
}

void WindowOutput::EndRun(const RunTimes& times,
                          const StallRecorder* stalls) noexcept {
  errors_->Guard("the times of all steps were lost",
                 [&] { EndRunOrThrow(times, stalls); });
}

TextOptions WindowOutput::Layout() const {
  TextOptions text;
  text.color = ColorsOnStdout();
  text.width = StdoutColumns();
  return text;
}

// Guarded separately, because exceptions of the program's function are not
// errors of the analysis.
void WindowOutput::CallBack(const Trace& trace) noexcept {
  if (job_report_ && options_.on_job_report) {
    errors_->Guard("on_job_report threw an exception",
                   [&] { options_.on_job_report(*job_report_); });
  }
  if (!options_.on_report) return;
  errors_->Guard(
      "on_report threw an exception",
      [&] { options_.on_report(trace, report_); },
      "; the files are written all the same");
}

// Sends the window to rank 0. Rank 0 itself waits for the windows of the
// others.
void WindowOutput::ShareWindow(RankDigest digest) {
  if (options_.job == nullptr) return;
  errors_->Guard(
      "no report of all ranks was made",
      [&] {
        digest.report.path_slices.clear();
        if (options_.writes_trace) {
          digest.report.run.source = paths_.chrome_kineto;
        }
        const int32_t cycle = digest.report.run.cycle;
        options_.job->Send(digest, cycle, paths_.digest);
        if (options_.identity.rank == 0) {
          job_report_ = options_.job->Gather(std::move(digest), cycle);
        }
      },
      "; each rank reports alone");
}

void WindowOutput::Print() {
  TextOptions text = Layout();
  text.details_path = job_report_ ? paths_.job_report : paths_.advice;
  if (!paths_.advice.empty()) {
    text.view_command = "tensorboard --logdir " + log_dir_;
  }
  PrintReport(options_.parts.to_text(ReportToShow(report_, job()), text));
}

// The report is printed before the files are written, because writing may take
// longer than the user waits, and may fail.
void WindowOutput::TakeOrThrow(ClosedWindow& window, const RunTimes& times) {
  const Trace trace = window.Build(MakeRunInfo());
  page_ = {};
  job_report_.reset();
  PageDetails* const page = log_ == nullptr ? nullptr : &page_;
  RankDigest digest;
  if (options_.job != nullptr) {
    digest = options_.parts.digest(trace, page);
    report_ = digest.report;
  } else {
    report_ = options_.parts.analyze(trace, page);
  }
  report_.whole_run = AnalyzeRun(times);

  // Cleared first: if this window gets no paths, the files of the previous
  // window must not be written again.
  paths_ = {};
  if (log_ != nullptr) {
    absl::StatusOr<LogPaths> made =
        log_->PathsOf(static_cast<int32_t>(window.cycle()));
    if (made.ok()) {
      paths_ = *std::move(made);
    } else {
      errors_->Add(made.status());
    }
    if (!log_->disagreement().empty() && window.cycle() == 0) {
      Say(log_->disagreement());
    }
  }
  ShareWindow(std::move(digest));
  if (options_.print_report && options_.identity.rank == 0) Print();
  CallBack(trace);
  if (!paths_.advice.empty()) WriteFiles(trace, false);
  if (options_.parts.on_window_end) options_.parts.on_window_end(Result(trace));
}

void WindowOutput::EndRunOrThrow(const RunTimes& times,
                                 const StallRecorder* stalls) {
  report_.whole_run = AnalyzeRun(times);
  if (stalls != nullptr) stalls->Explain(report_.whole_run);
  const std::string text = ToText(report_.whole_run, Layout());
  if (options_.print_report && options_.identity.rank == 0 && !text.empty()) {
    PrintReport("\n" + text);
  }
  if (options_.on_run_end) {
    errors_->Guard("on_run_end threw an exception",
                   [&] { options_.on_run_end(report_.whole_run); });
  }
  // A trace can be large, so it is not kept until the end. Only files that need
  // just the report are written again, now with the times of all steps.
  if (!paths_.advice.empty() && !text.empty()) {
    WriteFiles(Trace(), true);
  }
}

WindowResult WindowOutput::Result(const Trace& trace) const {
  return {.trace = trace,
          .report = report_,
          .page = page_,
          .paths = paths_,
          .log_dir = log_dir_,
          .job = job()};
}

void WindowOutput::WriteFiles(const Trace& trace, bool again) {
  int failed = 0;
  int written = 0;
  absl::Status first;
  const auto note = [&](const absl::Status& status) {
    ++(status.ok() ? written : failed);
    if (first.ok()) first = status;
  };
  const WindowResult result = Result(trace);
  for (const WindowFile& file : options_.parts.files) {
    if (again && !file.of_report) continue;
    if (file.of_job && result.job == nullptr) continue;
    if (!file.rank_0_only || options_.identity.rank == 0) {
      note(Write(file, result));
    }
  }
  if (failed == 0) return;
  // Report one line, even if a full disk makes many files fail.
  errors_->Add(absl::Status(
      first.code(), std::to_string(failed) + " of " +
                        std::to_string(failed + written) +
                        " files were not written: " + MessageOf(first)));
}

}  // namespace stepscope
