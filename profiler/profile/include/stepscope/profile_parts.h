// ProfileParts: what a Profile is put together from. The core knows none of
// them: the library `profile` gives it the default collectors,
// `profile_outputs` the analysis and the files; plugins/inject brings
// collectors of its own.
#pragma once

#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/collector.h>
#include <stepscope/logdir.h>
#include <stepscope/profile.h>
#include <stepscope/trace.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// One window, analysed, and where its files go.
struct WindowResult {
  const Trace& trace;
  const Report& report;
  const LogPaths& paths;
  const std::string& log_dir;
};

// Writes one file of a window. Called on the background thread.
struct WindowFile {
  bool rank_0_only = false;
  std::function<absl::Status(const WindowResult& result)> write;
};

struct ProfileParts {
  // The sources of events in the order they start, where
  // ProfileOptions::collectors names none.
  std::function<std::vector<std::unique_ptr<Collector>>(const ProfileOptions&)>
      collectors;
  std::function<Report(const Trace&)> analyze;
  // The report for the terminal.
  std::function<std::string(const Report&, const TextOptions&)> to_text;
  // In the order they are written: the smallest and most useful first, as a
  // disk may be nearly full.
  std::vector<WindowFile> files;
};

// The analysis, its text, and the files that the options ask for; no
// collectors.
ProfileParts ProfileOutputs(const ProfileOptions& options);

}  // namespace stepscope
