// WindowOutput: turns a closed window into a Trace, a Report, a printed report
// and files. Runs on the background thread.
#pragma once

#include <stepscope/profile_parts.h>
#include <stepscope/session.h>
#include <stepscope/trace.h>

#include <functional>
#include <memory>
#include <string>

#include "console.h"
#include "log_run.h"
#include "run_identity.h"

namespace stepscope {

class WindowOutput {
 public:
  struct Options {
    std::string name;
    RunIdentity identity;
    bool record_shapes = false;
    bool profile_memory = false;
    bool with_stack = false;
    bool print_report = true;
    ProfileParts parts;
    std::function<void(const Trace&, const Report&)> on_report;
  };

  // `log` may be null: then no files are written.
  WindowOutput(Options options, std::unique_ptr<LogRun> log,
               std::shared_ptr<Errors> errors);

  // Builds, analyses, prints and writes. Adds every failure to the Errors; a
  // file that fails does not stop the others.
  void Take(ClosedWindow& window) noexcept;

 private:
  void TakeOrThrow(ClosedWindow& window);
  RunInfo MakeRunInfo();
  void WriteFiles(const Trace& trace, const Report& report,
                  const LogPaths& paths);

  const Options options_;
  const std::unique_ptr<LogRun> log_;
  const std::shared_ptr<Errors> errors_;
};

}  // namespace stepscope
