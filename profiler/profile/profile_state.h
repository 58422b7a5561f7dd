// Profile::State: the parts of a Profile, and how they work together. All calls
// are made on the training thread.
#pragma once

#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>
#include <stepscope/session.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "background.h"
#include "console.h"
#include "ending_signals.h"
#include "job_report.h"
#include "run_output.h"
#include "run_watch.h"
#include "stall_recorder.h"
#include "window_output.h"

namespace stepscope {

struct Profile::State {
  std::shared_ptr<Errors> errors;
  std::string who;
  Schedule schedule;
  int64_t first_step = 0;
  bool marked_steps = false;
  std::chrono::milliseconds stop_timeout{0};
  int exceptions = 0;  // uncaught when the Profile was created
  std::unique_ptr<Session> session;
  bool recording = false;                 // the session has steps left
  std::unique_ptr<RunWatch> watch;        // null without time_all_steps
  std::shared_ptr<StallRecorder> stalls;  // null: stalls are not recorded
  std::shared_ptr<WindowOutput> output;
  std::shared_ptr<RunOutput> run_output;
  // The number of windows that are being analysed. Steps during an analysis do
  // not count as undisturbed.
  std::shared_ptr<std::atomic<int>> analysing =
      std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<Background> background;
  std::unique_ptr<EndingSignals> signals;  // null without signal_grace
  bool finish_ends_program = true;         // as in ProfileParts
  bool finished = false;

  using MakeCollectors = decltype(ProfileParts::collectors);

  void Start(ProfileOptions options, ProfileParts parts);
  std::shared_ptr<JobReport> MakeJob(const ProfileOptions& options,
                                     const RunIdentity& identity,
                                     std::shared_ptr<LogRun> log) const;
  void WatchRun(const std::shared_ptr<const ProfileOptions>& options,
                const std::shared_ptr<LogRun>& log, MakeCollectors collectors);
  Session::Options SessionOptions(const ProfileOptions& options) const;
  bool Undisturbed() const {
    return !session->recording() &&
           !(stalls != nullptr && stalls->recording()) &&
           analysing->load(std::memory_order_relaxed) == 0;
  }
  bool IsStallDue() const {
    return stalls != nullptr && stalls->IsDue(watch->next_step());
  }
  // Gives the background thread a job during which steps do not count as
  // undisturbed. False if there is no room for the job.
  template <typename Job>
  bool Analyse(Job job);
  void EndSessionStep();
  void EndStallStep();
  void HandOver(std::unique_ptr<ClosedWindow> window);
  void DoChores();
  void EndRun();
  // True if a signal has asked the program to end.
  bool IsAskedToEnd() const {
    return signals != nullptr && EndingSignals::Caught() != 0;
  }
  void HurryUp();
  void EndLoop();
  void WaitForFiles();
};

}  // namespace stepscope
