#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>
#include <stepscope/session.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "background.h"
#include "console.h"
#include "log_run.h"
#include "run_identity.h"
#include "window_output.h"

namespace stepscope {

using std::chrono::milliseconds;

struct Profile::State {
  std::shared_ptr<Errors> errors;
  std::string who;
  Schedule schedule;
  milliseconds stop_timeout{0};
  int exceptions = 0;  // uncaught when the Profile was created
  std::unique_ptr<Session> session;
  std::shared_ptr<WindowOutput> output;
  std::unique_ptr<Background> background;
  bool finished = false;

  void Start(ProfileOptions options, ProfileParts parts);
  void HandOver(std::unique_ptr<ClosedWindow> window);
  void EndLoop();
  void WaitForFiles();
};

namespace {

// Runs `call`; an exception becomes an error of the Profile.
template <typename Call>
void Guard(const std::shared_ptr<Errors>& errors, const char* what,
           Call call) noexcept {
  std::string text;
  try {
    call();
    return;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "unknown exception";
  }
  errors->Add(absl::InternalError(std::string(what) + ": " + text +
                                  "; training goes on unprofiled"));
}

std::string Seconds(milliseconds time) {
  return std::to_string((time.count() + 999) / 1000) + " s";
}

}  // namespace

void Profile::State::Start(ProfileOptions options, ProfileParts parts) {
  RunIdentity identity = OwnIdentity();
  identity.name = options.name;
  if (identity.world_size > 1) {
    who = "rank " + std::to_string(identity.rank) + ": ";
  }
  errors = std::make_shared<Errors>(who);
  schedule = options.schedule;
  stop_timeout = std::max(options.stop_timeout, milliseconds(0));
  exceptions = std::uncaught_exceptions();

  Session::Options session_options{
      .name = options.name,
      .schedule = options.schedule,
      .buffers = {.max_buffer_bytes = options.max_buffer_bytes},
      .training_tid = options.training_tid,
      .on_error = [errors = errors](const absl::Status& e) { errors->Add(e); }};
  if (options.collectors.has_value()) {
    session_options.collectors = *std::move(options.collectors);
  } else {
    session_options.collectors = parts.collectors(options);
  }
  auto made = Session::Make(std::move(session_options));
  if (!made.ok()) {
    errors->Add(absl::Status(
        made.status().code(),
        MessageOf(made.status()) + "; training goes on unprofiled"));
    return;
  }
  session = *std::move(made);

  std::unique_ptr<LogRun> log;
  if (!options.log_dir.empty()) {
    auto opened = LogRun::Make(options.log_dir, identity);
    if (opened.ok()) {
      log = *std::move(opened);
    } else {
      errors->Add(opened.status());
    }
  }
  if (options.print_report && identity.rank == 0) {
    Say("\"" + options.name + "\": " + PlanText(schedule));
  }
  output = std::make_shared<WindowOutput>(
      WindowOutput::Options{.name = options.name,
                            .identity = identity,
                            .record_shapes = options.record_shapes,
                            .profile_memory = options.profile_memory,
                            .with_stack = options.with_stack,
                            .print_report = options.print_report,
                            .parts = std::move(parts),
                            .on_report = std::move(options.on_report)},
      std::move(log), errors);
  background = std::make_unique<Background>();
}

void Profile::State::HandOver(std::unique_ptr<ClosedWindow> window) {
  const int64_t cycle = window->cycle();
  // Shared, because std::function needs a copyable job.
  std::shared_ptr<ClosedWindow> shared = std::move(window);
  if (background->Add([output = output, shared] { output->Take(*shared); })) {
    return;
  }
  errors->Add(absl::ResourceExhaustedError(
      "window " + std::to_string(cycle) +
      " was dropped, because earlier windows are still being analysed; record "
      "fewer steps, or wait longer between windows"));
}

// A loop that ended early is an error only if nothing was recorded; otherwise
// what there is gets analysed, and a line says what is missing.
void Profile::State::EndLoop() {
  const bool by_exception = std::uncaught_exceptions() > exceptions;
  const bool was_done = session->done();
  const int64_t steps = session->steps();
  std::unique_ptr<ClosedWindow> window = session->End();
  if (by_exception && !was_done) {
    Say(who + "an exception left the loop in step " + std::to_string(steps) +
        (window == nullptr
             ? "; nothing was being recorded"
             : "; the window is kept until there (" +
                   std::to_string(window->steps()) + " complete steps)"));
  } else if (!was_done) {
    const std::string missed = MissedText(schedule, steps);
    const bool nothing = steps < StepsOfFirstCycle(schedule) &&
                         (window == nullptr || window->steps() == 0);
    if (nothing) {
      errors->Add(absl::FailedPreconditionError(missed));
    } else if (!missed.empty()) {
      Say(who + missed);
    }
  }
  // A window without a complete step is worth analysing only after an
  // exception.
  if (window != nullptr && (window->steps() > 0 || by_exception)) {
    HandOver(std::move(window));
  }
}

// Silent for the first second, which suffices for most programs.
void Profile::State::WaitForFiles() {
  constexpr milliseconds kQuiet(1000);
  constexpr milliseconds kEvery(10'000);
  milliseconds waited = std::min(kQuiet, stop_timeout);
  if (background->Wait(waited)) return;
  while (waited < stop_timeout) {
    Say(who + "analysing and writing the recorded window (" + Seconds(waited) +
        " so far, at most " + Seconds(stop_timeout) + ")");
    const milliseconds more = std::min(kEvery, stop_timeout - waited);
    if (background->Wait(more)) return;
    waited += more;
  }
  errors->Add(absl::DeadlineExceededError(
      "the recorded window was not analysed and written within " +
      Seconds(stop_timeout) +
      ", some files may be missing; raise stop_timeout or record less"));
}

Profile::Profile(ProfileOptions options,
                 ProfileParts (*parts)(const ProfileOptions&)) noexcept {
  try {
    state_ = std::make_unique<State>();
    state_->errors = std::make_shared<Errors>("");
  } catch (...) {
    Say("out of memory; training goes on unprofiled");
    state_.reset();
    return;
  }
  Guard(state_->errors, "cannot start profiling", [&] {
    ProfileParts made = parts(options);
    state_->Start(std::move(options), std::move(made));
  });
  recording_ = state_->background != nullptr;
  if (!recording_) {
    Guard(state_->errors, "cannot stop profiling",
          [&] { state_->session.reset(); });
  }
}

void Profile::EndStep() noexcept {
  State& state = *state_;
  recording_ = false;  // set again below if the step ends without an error
  Guard(state.errors, "profiling stopped", [&] {
    std::unique_ptr<ClosedWindow> window = state.session->Step();
    recording_ = !state.session->done() && !state.session->in_forked_child();
    if (window != nullptr) state.HandOver(std::move(window));
  });
}

absl::Status Profile::Finish() noexcept {
  if (state_ == nullptr) {
    return absl::ResourceExhaustedError("out of memory");
  }
  State& state = *state_;
  recording_ = false;
  if (state.background != nullptr && !state.finished &&
      !state.session->in_forked_child()) {
    state.finished = true;
    Guard(state.errors, "cannot end the profile", [&] {
      state.EndLoop();
      state.WaitForFiles();
    });
  }
  return status();
}

Profile::~Profile() {
  if (state_ == nullptr) return;
  if (state_->session != nullptr && state_->session->in_forked_child()) {
    // The thread, locks and files belong to the parent.
    (void)state_.release();
    return;
  }
  (void)Finish();
}

absl::Status Profile::status() const noexcept {
  if (state_ == nullptr) {
    return absl::ResourceExhaustedError("out of memory");
  }
  // The parent's other threads may have held the lock when it forked.
  if (state_->session != nullptr && state_->session->in_forked_child()) {
    return absl::OkStatus();
  }
  return state_->errors->first();
}

}  // namespace stepscope
