#include "window_results.h"

#include <absl/status/status.h>
#include <stepscope/export.h>
#include <unistd.h>

#include <utility>

namespace stepscope {
namespace {

// The limit is for programs that record a window every n steps.
constexpr size_t kMostKept = 16;

}  // namespace

WindowResults::WindowResults(Options options)
    : options_(std::move(options)), pid_(getpid()) {}

WindowResults::~WindowResults() {
  while (!windows_.empty()) DropOldest();
}

void WindowResults::DropOldest() {
  const Window& window = windows_.front();
  // Files of a log directory belong to the user. Spooled files are deleted with
  // their window, but not by a forked child, because the parent still offers
  // them.
  if (window.is_spooled && getpid() == pid_) unlink(window.trace_path.c_str());
  windows_.pop_front();
  ++first_;
}

void WindowResults::SetJob(const Report& report) {
  const std::lock_guard lock(mutex_);
  job_ = report;
}

void WindowResults::Add(const Trace& trace, const Report& report) {
  Window window;
  window.report = report;
  if (!options_.has_files && !options_.spool_dir.empty()) {
    const std::string path = options_.spool_dir + "/window" +
                             std::to_string(trace.run().cycle) + ".json.gz";
    window.is_spooled =
        WriteTrace(trace, ToAnnotations(report), Format::kChromeKineto, path)
            .ok();
    if (window.is_spooled) window.trace_path = path;
  }
  // Lock only now, so that Get() does not wait for the trace to be written.
  const std::lock_guard lock(mutex_);
  window.job = std::exchange(job_, std::nullopt);
  if (windows_.size() == kMostKept) DropOldest();
  windows_.push_back(std::move(window));
}

void WindowResults::SetFiles(const WindowResult& result) {
  const std::lock_guard lock(mutex_);
  if (windows_.empty()) return;
  Window& window = windows_.back();
  const std::string& trace = result.paths.chrome_kineto;
  // If the trace could not be written, the window has only a report.
  if (access(trace.c_str(), R_OK) == 0) window.trace_path = trace;
  window.advice_path = result.paths.advice;
  window.job_path = result.paths.job_report;
  if (!window.advice_path.empty()) window.log_dir = result.log_dir;
  ready_.fetch_add(1, std::memory_order_release);
}

void WindowResults::SetRun(const WholeRun& run) {
  const std::lock_guard lock(mutex_);
  run_text_ = ToText(run, options_.text);
  if (!windows_.empty()) windows_.back().report.whole_run = run;
}

int WindowResults::count() const {
  const std::lock_guard lock(mutex_);
  return first_ + static_cast<int>(windows_.size());
}

std::string WindowResults::TextOf(const Window& window) const {
  TextOptions text = options_.text;
  text.details_path = window.job ? window.job_path : window.advice_path;
  if (!window.log_dir.empty()) {
    text.view_command = "tensorboard --logdir " + window.log_dir;
  }
  // Rank 0 shows the job's report, but with the times of the whole run of this
  // process.
  Report shown = window.job ? *window.job : window.report;
  shown.whole_run = window.report.whole_run;
  return ToText(shown, text);
}

absl::StatusOr<std::string> WindowResults::Get(int number,
                                               std::string_view what) const {
  const std::lock_guard lock(mutex_);
  if (what == "run") return run_text_;
  const int end = first_ + static_cast<int>(windows_.size());
  if (number == -1) number = end - 1;
  if (number < first_ || number >= end) {
    return absl::NotFoundError(end == 0 ? "no window was recorded"
                                        : "window " + std::to_string(number) +
                                              " is not kept; there are " +
                                              std::to_string(first_) + " to " +
                                              std::to_string(end - 1));
  }
  const Window& window = windows_[static_cast<size_t>(number - first_)];
  if (what == "json") return ToJson(window.report);
  if (what == "text") return TextOf(window);
  if (what == "job") return window.job ? ToJson(*window.job) : "";
  if (what == "markdown") return ToMarkdown(window.report);
  if (what == "trace") {
    if (window.trace_path.empty()) {
      return absl::NotFoundError("the trace of this window was not kept");
    }
    return window.trace_path;
  }
  return absl::InvalidArgumentError(
      "a window has json, text, markdown, trace and job, not '" +
      std::string(what) + "'");
}

}  // namespace stepscope
