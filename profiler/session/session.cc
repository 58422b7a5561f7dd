#include <stepscope/clock.h>
#include <stepscope/session.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "fork_guard.h"
#include "session_losses.h"

namespace stepscope {
namespace {

// The last wait steps are enough. During earlier ones caches may still warm up.
constexpr size_t kMaxWaitSteps = 32;

// The name of the session that has cycles left in this process; valid if
// `g_holder_fork` is this process. Guarded by SharedMutex(). Never destroyed.
std::string* const g_holder = new std::string;
bool g_held = false;
uint64_t g_holder_fork = 0;

}  // namespace

// The claim to be the only session of the process; the destructor gives it up.
class Session::Claim {
 public:
  static absl::StatusOr<std::unique_ptr<Claim>> Make(const std::string& name) {
    const uint64_t fork_count = ForkCount();
    const std::lock_guard lock(SharedMutex());
    // A forked child does not inherit the parent's claim, because the child may
    // profile itself.
    if (g_held && g_holder_fork == fork_count) {
      return absl::FailedPreconditionError(
          "cannot profile \"" + name + "\": \"" + *g_holder +
          "\" is still being profiled in this process; let it end first (its "
          "schedule runs out, or its Profile is destroyed)");
    }
    *g_holder = name;
    std::unique_ptr<Claim> made(new Claim);
    g_held = true;  // after everything that may throw
    g_holder_fork = fork_count;
    return made;
  }
  ~Claim() {
    const std::lock_guard lock(SharedMutex());
    g_held = false;
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Claim() = default;
};

absl::StatusOr<std::unique_ptr<Session>> Session::Make(Options options) {
  // Check the schedule first: an invalid one must not block another session.
  if (absl::Status s = CheckSchedule(options.schedule); !s.ok()) return s;
  if (options.first_step < 0) {
    return absl::InvalidArgumentError("first_step is " +
                                      std::to_string(options.first_step) +
                                      ", but must be at least 0");
  }
  absl::StatusOr<std::unique_ptr<Claim>> claim = Claim::Make(options.name);
  if (!claim.ok()) return claim.status();
  ReadClock();  // chooses the clock before the first ticks are read
  return std::unique_ptr<Session>(
      new Session(std::move(options), *std::move(claim)));
}

// Runs `call`. If it throws (memory may run out anywhere), ends the Session:
// half a window is of no use, and collectors must not stay on.
template <typename Call>
auto Session::OrAbandon(Call call) {
  try {
    return call();
  } catch (...) {
    Abandon();
    throw;
  }
}

void Session::Abandon() noexcept {
  // Each turn removes one collector from the list, even if its Stop() throws.
  while (!started_.empty()) {
    try {
      StopCollectors(nullptr);
    } catch (const std::exception&) {
      // Only the error that led here is shown.
    }
  }
  DropRecording();
  Finish();
}

Session::Session(Options options, std::unique_ptr<Claim> claim)
    : options_(std::move(options)),
      claim_(std::move(claim)),
      fork_count_(ForkCount()),
      maker_tid_(gettid()),
      driver_(std::this_thread::get_id()) {
  wait_step_ns_.reserve(kMaxWaitSteps);
  OrAbandon([this] {
    Arm();
    Enter();
  });
}

void Session::Arm() {
  for (const auto& collector : options_.collectors) collector->Arm();
}

Session::~Session() {
  // In a child, destroying the members would unmap memory and lock mutexes that
  // the parent's threads may hold. A child usually calls exec or _exit soon, so
  // leaking them is harmless.
  if (in_forked_child()) {
    (void)claim_.release();
    (void)buffers_.release();
    for (auto& collector : options_.collectors) (void)collector.release();
    return;
  }
  if (recording_) Abandon();
}

bool Session::in_forked_child() const { return ForkCount() != fork_count_; }

void Session::ReportOnce(const absl::Status& error) {
  // A failure that repeats in every cycle is reported once.
  std::string text(error.message());
  if (std::find(reported_.begin(), reported_.end(), text) != reported_.end())
    return;
  reported_.push_back(std::move(text));
  // A source that does not exist here (Unavailable: no GPU, not built) is not
  // an error. Only the Trace mentions it.
  if (options_.on_error && !absl::IsUnavailable(error)) {
    options_.on_error(error);
  }
}

void Session::Enter() {
  const SchedulePlace before = place_;
  place_ = PlaceOf(options_.schedule, step_);
  if (place_.phase == SchedulePhase::kDone) {
    Finish();
    return;
  }
  // Keep only the wait steps of this cycle, because the program may have
  // changed since the previous cycle.
  if (place_.cycle != before.cycle) wait_step_ns_.clear();
  if (place_.phase != SchedulePhase::kWait && !recording_) StartRecording();
  if (IsSampleStep()) {
    const bool is_recorded = place_.phase == SchedulePhase::kActive;
    for (Collector* collector : started_) collector->OnSampleStep(is_recorded);
  }
  if (options_.marked_steps) {
    for (Collector* collector : started_) collector->Pause();
  }
  MarkBegin();
}

void Session::MarkBegin() {
  // In nanoseconds, because the length of a step is needed while the loop runs,
  // and ticks can be converted only after the window has closed.
  step_begin_ns_ = MonotonicNs();
  step_begin_ = NowTicks();
  if (place_.phase == SchedulePhase::kActive && window_->steps_.empty()) {
    window_->begin_ = step_begin_;
  }
}

void Session::BeginStep() {
  if (!options_.marked_steps || done_ || in_forked_child()) return;
  OrAbandon([this] {
    for (Collector* collector : started_) collector->Resume();
    MarkBegin();
  });
}

// True for the last warm-up step or, if there is none, the window's first step.
bool Session::IsSampleStep() const {
  if (place_.phase == SchedulePhase::kActive) {
    return place_.index == 0 && options_.schedule.warmup == 0;
  }
  return place_.phase == SchedulePhase::kWarmup &&
         place_.index + 1 == options_.schedule.warmup;
}

void Session::StartRecording() {
  recording_ = true;
  // Reserve first, so that adding a started collector to the list cannot fail.
  started_.reserve(options_.collectors.size());
  window_ = std::make_unique<ClosedWindow>();
  window_->cycle_ = place_.cycle;
  window_->pid_ = getpid();
  window_->tid_ = options_.training_tid != 0 ? options_.training_tid : gettid();
  if (options_.training_tid == 0 && window_->tid_ != maker_tid_) {
    window_->losses_.push_back(OtherThreadTrains(window_->tid_, maker_tid_));
  }
  // The two clock readings of a window enclose its records, so that ticks are
  // interpolated and never extrapolated (ClockMap).
  window_->clock_begin_ = ReadClock();
  absl::StatusOr<std::unique_ptr<EventBuffers>> buffers =
      EventBuffers::Open(options_.buffers);
  if (!buffers.ok()) {
    ReportOnce(buffers.status());
    window_->losses_.push_back(LossOf("buffers-unavailable", buffers.status()));
    window_->losses_.back().severity = Severity::kError;
    return;  // collectors cannot record without buffers
  }
  buffers_ = *std::move(buffers);
  for (const auto& collector : options_.collectors) {
    const absl::Status started = collector->Start();
    if (started.ok()) {
      started_.push_back(collector.get());
      continue;
    }
    ReportOnce(started);
    window_->losses_.push_back(
        LossOf(std::string(collector->name()) + "-unavailable", started));
  }
}

// A window belongs to the thread that trains when it opens. A Step() on another
// thread would mark a step in the same window and make the marks of both
// threads meaningless.
void Session::CheckThread() {
  const std::thread::id caller = std::this_thread::get_id();
  if (caller == driver_) return;
  driver_ = caller;
  if (!recording_ || options_.training_tid != 0) return;
  const auto known =
      std::ranges::find(window_->losses_, "step-threads", &Loss::name);
  if (known != window_->losses_.end()) {
    ++known->count;
    return;
  }
  window_->losses_.push_back(StepOnOtherThread(gettid(), window_->tid_));
}

std::unique_ptr<ClosedWindow> Session::Step() {
  if (done_ || in_forked_child()) return nullptr;
  return OrAbandon([this] { return EndStep(); });
}

std::unique_ptr<ClosedWindow> Session::EndStep() {
  CheckThread();
  // Counters of two cores may differ by a few ticks, but a step must not end
  // before it began.
  const Ticks end = std::max(NowTicks(), step_begin_);
  const int64_t end_ns = MonotonicNs();
  switch (place_.phase) {
    case SchedulePhase::kWait:
      // Step 0 also contains the time before the loop.
      if (step_ > 0) {
        if (wait_step_ns_.size() == kMaxWaitSteps) {
          wait_step_ns_.erase(wait_step_ns_.begin());
        }
        wait_step_ns_.push_back(end_ns - step_begin_ns_);
      }
      if (place_.cycle == 0) Arm();
      break;
    case SchedulePhase::kActive:
      window_->steps_.push_back(
          {step_begin_, end, options_.first_step + step_});
      window_->end_ = end;
      break;
    case SchedulePhase::kWarmup:
    case SchedulePhase::kDone:
      break;
  }
  if (recording_) {
    // Read the time once, so that all samples of a step have the same time.
    const int64_t now_ns = NowNs();
    for (Collector* collector : started_)
      collector->OnStep(options_.first_step + step_, now_ns);
  }
  const bool was_active = place_.phase == SchedulePhase::kActive;
  const int64_t cycle = place_.cycle;
  ++step_;
  std::unique_ptr<ClosedWindow> closed;
  // The phase of the step that begins now decides what is switched on or off.
  // The window closes unless the next step is an active step of the same cycle.
  const SchedulePlace next = PlaceOf(options_.schedule, step_);
  if (was_active &&
      (next.phase != SchedulePhase::kActive || next.cycle != cycle)) {
    closed = CloseWindow();
  }
  const bool same_phase = next.phase == place_.phase && closed == nullptr;
  // Must come after closing, because with wait 0 and warmup 0 the next window
  // opens here.
  Enter();
  // Steps follow each other without a gap unless something was switched between
  // them.
  if (same_phase) {
    step_begin_ = end;
    step_begin_ns_ = end_ns;
  }
  return closed;
}

std::unique_ptr<ClosedWindow> Session::End() {
  if (done_ || in_forked_child()) return nullptr;
  return OrAbandon([this] { return EndLoop(); });
}

std::unique_ptr<ClosedWindow> Session::EndLoop() {
  std::unique_ptr<ClosedWindow> closed;
  if (recording_ && window_->begin_ != 0) {
    // The window ends with its last complete step, because events of an
    // unfinished step would be counted for the others. If no step is complete,
    // keep everything: it may show why the loop ended.
    if (window_->steps_.empty()) window_->end_ = NowTicks();
    closed = CloseWindow();
  } else if (recording_) {
    DropRecording();
  }
  Finish();
  return closed;
}

// Destroys the collectors even if the Session lives on, because what they hold
// (CUPTI, for example) would slow down the rest of the program.
void Session::Finish() {
  done_ = true;
  options_.collectors.clear();
  claim_.reset();
}

std::unique_ptr<ClosedWindow> Session::CloseWindow() {
  // Remove the hooks first: the buffers must not close while a collector still
  // starts records.
  StopCollectors(window_.get());
  if (buffers_ != nullptr) {
    window_->events_ = buffers_->Close();
    buffers_.reset();
  }
  window_->clock_end_ = ReadClock();
  window_->wait_step_ns_ = wait_step_ns_;
  window_->loaders_ = TakeLoadersWaitedFor(window_->begin_);
  recording_ = false;
  return std::move(window_);
}

// Stops the collectors in the reverse order of their start. If `window` is
// null, their recordings are discarded.
void Session::StopCollectors(ClosedWindow* window) {
  while (!started_.empty()) {
    Collector* const collector = started_.back();
    started_.pop_back();
    absl::StatusOr<std::unique_ptr<Recording>> recording = collector->Stop();
    if (window == nullptr) continue;
    if (recording.ok()) {
      if (*recording != nullptr) {
        window->recordings_.push_back(*std::move(recording));
      }
      continue;
    }
    ReportOnce(recording.status());
    window->losses_.push_back(LossOf(
        std::string(collector->name()) + "-stop-failed", recording.status()));
  }
}

void Session::DropRecording() {
  StopCollectors(nullptr);
  buffers_.reset();
  window_.reset();
  recording_ = false;
}

}  // namespace stepscope
