// Keeps the reports of a profile's windows for later calls. Filled on the
// profile's background thread; any thread may read them.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/analysis.h>
#include <stepscope/profile_parts.h>
#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace stepscope {

class WindowResults {
 public:
  struct Options {
    TextOptions text;        // the layout of reports
    bool has_files = false;  // a log directory gets files of each window
    // Without a log directory: the folder for traces; "": traces are not kept.
    std::string spool_dir;
  };

  explicit WindowResults(Options options);
  ~WindowResults();
  WindowResults(const WindowResults&) = delete;
  WindowResults& operator=(const WindowResults&) = delete;

  // Sets the report of all ranks for the window of the next Add().
  void SetJob(const Report& report);
  // A window was analysed.
  void Add(const Trace& trace, const Report& report);
  // The files of the last window are written, or there are none.
  void SetFiles(const WindowResult& result);
  // The run has ended.
  void SetRun(const WholeRun& run);

  // The number of windows whose files are written, as far as they can be.
  int ready() const { return ready_.load(std::memory_order_acquire); }
  int count() const;
  // `what`: "json", "text", "markdown", "trace", "run", "job" (the report of
  // all ranks as JSON; "" if there is none). -1: the last window. Errors:
  // InvalidArgument (`what`), NotFound (no such window, or it is no longer
  // kept).
  absl::StatusOr<std::string> Get(int window, std::string_view what) const;

 private:
  struct Window {
    Report report;
    std::optional<Report> job;
    std::string trace_path;
    std::string advice_path;
    std::string job_path;
    std::string log_dir;
    bool is_spooled = false;
  };
  std::string TextOf(const Window& window) const;
  void DropOldest();

  const Options options_;
  const int pid_;  // a forked child owns no files
  mutable std::mutex mutex_;
  std::deque<Window> windows_;  // the last ones
  int first_ = 0;               // the number of windows_[0]
  std::optional<Report> job_;   // of the next window
  std::string run_text_;
  std::atomic<int> ready_{0};
};

}  // namespace stepscope
