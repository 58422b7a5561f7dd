#include "profile_state.h"

#include <stepscope/run_identity.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "log_run.h"

namespace stepscope {

using std::chrono::milliseconds;

namespace {

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
  if (!identity.problem.empty()) Say(identity.problem);
  schedule = options.schedule;
  first_step = options.first_step;
  marked_steps = options.marked_steps;
  stop_timeout = std::max(options.stop_timeout, milliseconds(0));
  // A Profile may be created while an exception is being handled, so EndLoop()
  // compares with the number at this time.
  exceptions = std::uncaught_exceptions();

  // Collectors that the caller made exist only once. A window around a stall
  // needs a second set, so in this case stalls are not recorded.
  const bool own_collectors = options.collectors.has_value();
  Session::Options session_options = SessionOptions(options);
  session_options.schedule = options.schedule;
  session_options.collectors = own_collectors ? *std::move(options.collectors)
                                              : parts.collectors(options);
  auto made = Session::Make(std::move(session_options));
  if (!made.ok()) {
    errors->Add(absl::Status(
        made.status().code(),
        MessageOf(made.status()) + "; training goes on unprofiled"));
    return;
  }
  session = *std::move(made);

  // If the log directory cannot be used, the report is still printed.
  std::shared_ptr<LogRun> log;
  if (!options.log_dir.empty()) {
    auto opened = LogRun::Make(options.log_dir, identity);
    if (opened.ok()) {
      log = *std::move(opened);
    } else {
      errors->Add(opened.status());
    }
  }
  // Print one line per job instead of one per rank.
  if (options.print_report && identity.rank == 0) {
    Say("\"" + options.name + "\": " + PlanText(schedule, first_step));
  }
  if (options.signal_grace.count() > 0) {
    signals = EndingSignals::Make(options.signal_grace);
  }
  finish_ends_program = parts.finish_ends_program;
  MakeCollectors make_collectors = parts.collectors;
  std::shared_ptr<JobReport> job;
  if (parts.digest) job = MakeJob(options, identity, log);
  output = std::make_shared<WindowOutput>(
      WindowOutput::Options{
          .name = options.name,
          .identity = identity,
          .record_shapes = options.record_shapes,
          .profile_memory = options.profile_memory,
          .with_stack = options.with_stack,
          .print_report = options.print_report,
          .parts = std::move(parts),
          .on_report = std::move(options.on_report),
          .on_job_report = std::move(options.on_job_report),
          .on_run_end = std::move(options.on_run_end),
          .job = job,
          .writes_trace = options.write_chrome_kineto && log != nullptr},
      log, errors);
  // A window around a stall opens where the program does not expect it. If it
  // recorded memory, torch.profiler could not be started meanwhile.
  options.profile_memory = false;
  WatchRun(std::make_shared<ProfileOptions>(std::move(options)), log,
           own_collectors ? nullptr : std::move(make_collectors));
  background = std::make_unique<Background>();
  if (job != nullptr) background->Add([job] { job->Announce(); });
  recording = true;
}

// Returns null if there is only one rank or no way to reach rank 0.
std::shared_ptr<JobReport> Profile::State::MakeJob(
    const ProfileOptions& options, const RunIdentity& identity,
    std::shared_ptr<LogRun> log) const {
  if (identity.world_size < 2 || options.rank_timeout <= milliseconds(0) ||
      (options.exchange == nullptr && log == nullptr)) {
    return nullptr;
  }
  // All ranks run the same program, so the n-th Profile of each rank is the
  // same one.
  static std::atomic<int> profiles{0};
  return std::make_shared<JobReport>(
      JobReport::Options{
          .identity = identity,
          .key = options.name + "/" + std::to_string(profiles.fetch_add(1)),
          .exchange = options.exchange,
          .timeout = options.rank_timeout},
      std::move(log), errors);
}

Session::Options Profile::State::SessionOptions(
    const ProfileOptions& options) const {
  return {
      .name = options.name,
      .buffers = {.max_buffer_bytes = options.max_buffer_bytes},
      .training_tid = options.training_tid,
      .first_step = options.first_step,
      .marked_steps = options.marked_steps,
      .on_error = [errors = errors](const absl::Status& e) { errors->Add(e); }};
}

// If `collectors` is null, stalls are not recorded.
void Profile::State::WatchRun(
    const std::shared_ptr<const ProfileOptions>& options,
    const std::shared_ptr<LogRun>& log, MakeCollectors collectors) {
  if (!options->time_all_steps) return;
  run_output = std::make_shared<RunOutput>(log, who, errors);
  // Not with marked steps, which StallRecorder does not support.
  const bool record =
      options->record_stalls && collectors != nullptr && !options->marked_steps;
  watch = std::make_unique<RunWatch>(RunWatch::Options{
      .first_step = options->first_step,
      .keep_lines = options->write_step_times && log != nullptr,
      .status_every = options->status_every,
      .look_for_stalls = record});
  if (!record) return;
  stalls = std::make_shared<StallRecorder>(
      [this, options, collectors = std::move(collectors)] {
        Session::Options made = SessionOptions(*options);
        made.collectors = collectors(*options);
        return made;
      });
}

template <typename Job>
bool Profile::State::Analyse(Job job) {
  // Incremented before the job is queued, because the thread may finish it at
  // once.
  analysing->fetch_add(1, std::memory_order_relaxed);
  if (background->Add([job = std::move(job), busy = analysing] {
        job();
        busy->fetch_sub(1, std::memory_order_relaxed);
      })) {
    return true;
  }
  analysing->fetch_sub(1, std::memory_order_relaxed);
  return false;
}

// Ends one step of the schedule. The time for switching collectors belongs to
// no step.
void Profile::State::EndSessionStep() {
  const bool was_on = session->recording();
  std::unique_ptr<ClosedWindow> window = session->Step();
  recording = !session->done() && !session->in_forked_child();
  if (window != nullptr) HandOver(std::move(window));
  if (watch != nullptr && was_on != session->recording()) watch->Restart();
}

// Ends one step of the window around a stall.
void Profile::State::EndStallStep() {
  if (session->in_forked_child()) return;
  std::shared_ptr<ClosedWindow> window = stalls->EndStep(watch->next_step());
  watch->Restart();
  if (window == nullptr) return;
  if (!Analyse([output = output, stalls = stalls, window] {
        output->TakeStall(*window, *stalls);
      })) {
    stalls->Release();
  }
}

void Profile::State::HandOver(std::unique_ptr<ClosedWindow> window) {
  const int64_t cycle = window->cycle();
  // A shared_ptr, because std::function needs a copyable job.
  std::shared_ptr<ClosedWindow> shared = std::move(window);
  RunTimes times;
  if (watch != nullptr) times = watch->Times();
  if (Analyse([output = output, shared, times = std::move(times)] {
        output->Take(*shared, times);
      })) {
    return;
  }
  // Drop the window: memory would grow without limit if windows came faster
  // than they are analysed.
  errors->Add(absl::ResourceExhaustedError(
      "window " + std::to_string(cycle) +
      " was dropped, because earlier windows are still being analysed; record "
      "fewer steps, or wait longer between windows"));
}

// Gives everything that is due to the background thread. If that thread is
// busy, tries again when the next chores are due.
void Profile::State::DoChores() {
  if (session->in_forked_child() || !background->HasRoom()) return;
  RunWatch::Chores due = watch->Due();
  if (!due.lines.empty()) {
    background->Add([output = run_output, lines = std::move(due.lines)] {
      output->Write(lines);
    });
  }
  if (due.status && background->HasRoom()) {
    background->Add([output = run_output, times = watch->Times()] {
      output->SayStatus(times);
    });
  }
  if (due.stalls && !recording && background->HasRoom()) {
    background->Add([output = run_output, stalls = stalls,
                     times = watch->Times()] { output->Plan(times, *stalls); });
  }
}

void Profile::State::EndRun() {
  if (watch == nullptr) return;
  if (stalls != nullptr) stalls->Drop();
  // This must be the last job, because its output comes after that of the
  // windows. So wait until there is room for it.
  if (!background->HasRoom()) WaitForFiles();
  background->Add([output = output, run = run_output, stalls = stalls,
                   lines = watch->Lines(), times = watch->Times()] {
    run->Write(lines);
    output->EndRun(times, stalls.get());
  });
}

// A loop that ended early is an error only if nothing was recorded. Otherwise
// the recorded steps are analysed, and a line says what is missing.
void Profile::State::EndLoop() {
  const bool by_exception = std::uncaught_exceptions() > exceptions;
  const bool was_done = session->done();
  const int64_t steps = session->steps();
  std::unique_ptr<ClosedWindow> window = session->End();
  if (by_exception && !was_done) {
    Say(who + "an exception left the loop in step " +
        std::to_string(first_step + steps) +
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
  // A window without a complete step is analysed only after an exception: it
  // shows what led to the exception.
  if (window != nullptr && (window->steps() > 0 || by_exception)) {
    HandOver(std::move(window));
  }
}

// Limits the wait for the files to the rest of the grace period.
void Profile::State::HurryUp() {
  stop_timeout = std::min(stop_timeout, EndingSignals::Left());
  Say(who + EndingSignals::NameOf(EndingSignals::Caught()) +
      ": the profile ends first (at most " + Seconds(stop_timeout) + ")");
}

// Silent for the first second, which is long enough for most programs.
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

}  // namespace stepscope
