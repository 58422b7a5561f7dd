#include "running_profile.h"

#include <stepscope/collectors.h>
#include <stepscope/profile_parts.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "json_request.h"
#include "window_results.h"

namespace stepscope {
namespace {

using std::chrono::milliseconds;

// Longer than any call of a store that responds.
constexpr milliseconds kLastCall(1000);

Schedule ReadSchedule(JsonRequest& request) {
  Schedule schedule;
  schedule.skip_first = request.Whole("skip_first", schedule.skip_first);
  schedule.wait = request.Whole("wait", schedule.wait);
  schedule.warmup = request.Whole("warmup", schedule.warmup);
  schedule.active = request.Whole("active", schedule.active);
  schedule.repeat = request.Whole("repeat", schedule.repeat);
  return schedule;
}

// Options of Python profiles that ProfileOptions does not have.
struct SourceOptions {
  bool with_modules = false;
  bool gpu = true;
};
struct StartOptions {
  ProfileOptions profile;
  SourceOptions sources;
  WindowResults::Options results;
};

absl::StatusOr<StartOptions> ReadOptions(const char* text) {
  absl::StatusOr<JsonRequest> parsed = JsonRequest::Parse(text);
  if (!parsed.ok()) return parsed.status();
  JsonRequest& request = *parsed;
  StartOptions start;
  ProfileOptions& to = start.profile;
  to.print_report = false;  // sys.stdout is the caller's
  to.log_dir = request.Text("log_dir");
  to.name = request.Text("name", to.name);
  JsonRequest schedule = request.Object("schedule");
  to.schedule = ReadSchedule(schedule);
  to.first_step = request.Whole("first_step", to.first_step);
  to.marked_steps = request.Flag("marked_steps", to.marked_steps);
  to.record_shapes = request.Flag("record_shapes", to.record_shapes);
  to.profile_memory = request.Flag("profile_memory", to.profile_memory);
  to.with_stack = request.Flag("with_stack", to.with_stack);
  start.sources.with_modules = request.Flag("with_modules", false);
  start.sources.gpu = request.Flag("gpu", true);
  to.max_buffer_bytes = request.Whole("max_buffer_bytes", to.max_buffer_bytes);
  to.write_page = request.Flag("write_page", to.write_page);
  to.write_chrome_tb = request.Flag("write_chrome_tb", to.write_chrome_tb);
  to.write_xspace = request.Flag("write_xspace", to.write_xspace);
  to.write_chrome_kineto =
      request.Flag("write_chrome_kineto", to.write_chrome_kineto);
  to.time_all_steps = request.Flag("time_all_steps", to.time_all_steps);
  to.record_stalls = request.Flag("record_stalls", to.record_stalls);
  to.write_step_times = request.Flag("write_step_times", to.write_step_times);
  to.status_every = milliseconds(request.Whole("status_every_ms", 0));
  to.stop_timeout = milliseconds(
      request.Whole("stop_timeout_ms", milliseconds(to.stop_timeout).count()));
  to.rank_timeout = milliseconds(
      request.Whole("rank_timeout_ms", milliseconds(to.rank_timeout).count()));
  to.signal_grace = milliseconds(request.Whole("signal_grace_ms", 0));
  start.results.has_files = !to.log_dir.empty();
  start.results.spool_dir = request.Text("spool_dir");
  start.results.text.color = request.Flag("color", false);
  start.results.text.width =
      static_cast<int>(request.Whole("width", start.results.text.width));
  // Check both: each object knows only the keys that were read from it.
  if (absl::Status s = schedule.Check(); !s.ok()) return s;
  if (absl::Status s = request.Check(); !s.ok()) return s;
  if (absl::Status s = CheckSchedule(to.schedule); !s.ok()) return s;
  return start;
}

// Never destroyed: calls may come until the process ends.
struct HookOfProcess {
  std::mutex mutex;
  ModuleHook hook;
  ExchangeHook exchange;
};
HookOfProcess& TheHook() {
  static auto* const hook = new HookOfProcess;
  return *hook;
}

ModuleHook CurrentModuleHook() {
  const std::lock_guard lock(TheHook().mutex);
  return TheHook().hook;
}

// Returns null if the program has set no store.
std::shared_ptr<HookExchange> MakeExchange() {
  const std::lock_guard lock(TheHook().mutex);
  if (TheHook().exchange.put == nullptr) return nullptr;
  return std::make_shared<HookExchange>(TheHook().exchange);
}

// In the order of DefaultCollectors().
std::vector<std::unique_ptr<Collector>> MakeCollectors(
    const ProfileOptions& options, const SourceOptions& sources,
    const stepscope_shim* shim) {
  std::vector<std::unique_ptr<Collector>> collectors;
  const auto add = [&](Collector* made) {
    if (made != nullptr) collectors.emplace_back(made);
  };
  collectors.push_back(MakeHostCollector());
  if (shim != nullptr) {
    add(shim->make_settings());
    add(shim->make_allocator());
  }
  const stepscope_torch_options torch = {
      .record_shapes = options.record_shapes,
      .profile_memory = options.profile_memory,
      .with_stack = options.with_stack,
      .with_modules = sources.with_modules,
      .module_hook = sources.with_modules ? CurrentModuleHook() : ModuleHook()};
  if (sources.gpu) {
    CuptiOptions cupti;
    if (shim != nullptr) {
      cupti.capture_scopes.reset(shim->make_capture_scopes(&torch));
    }
    collectors.push_back(MakeCuptiCollector(cupti));
  }
  collectors.push_back(MakeNvtxCollector());
  if (shim != nullptr) add(shim->make_torch(&torch));
  return collectors;
}

// Data for PartsOfStarting(), which gets no context from Profile.
struct Starting {
  const stepscope_shim* shim = nullptr;
  SourceOptions sources;
  std::shared_ptr<WindowResults> results;
};
// Set while Start() constructs a Profile, which calls PartsOfStarting() on the
// same thread.
thread_local const Starting* t_starting = nullptr;

ProfileParts PartsOfStarting(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.finish_ends_program = false;  // the caller has reports to show
  parts.collectors = [shim = t_starting->shim, sources = t_starting->sources](
                         const ProfileOptions& options) {
    return MakeCollectors(options, sources, shim);
  };
  parts.on_window_end = [results =
                             t_starting->results](const WindowResult& result) {
    results->SetFiles(result);
  };
  return parts;
}

}  // namespace

absl::Status CheckShim(const stepscope_shim* shim) {
  if (shim == nullptr) return absl::OkStatus();
  // A shim is kept in a cache and may be older than this core. It passes C++
  // objects, so both must be built from the same sources, which alone guarantee
  // the same layout.
  if (shim->abi == STEPSCOPE_SHIM_ABI && shim->id != nullptr &&
      std::string_view(shim->id) == ShimId() &&
      shim->make_settings != nullptr && shim->make_allocator != nullptr &&
      shim->make_torch != nullptr && shim->make_capture_scopes != nullptr &&
      shim->on_first_operator != nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "the torch shim was built from other sources than this stepscope");
}

void SetModuleHook(const ModuleHook& hook) {
  const std::lock_guard lock(TheHook().mutex);
  TheHook().hook = hook;
}

void SetExchangeHook(const ExchangeHook& hook) {
  const std::lock_guard lock(TheHook().mutex);
  TheHook().exchange = hook;
}

const char* ShimId() { return STEPSCOPE_SHIM_ID; }

absl::StatusOr<std::shared_ptr<RunningProfile>> RunningProfile::Start(
    const char* options, const stepscope_shim* shim) {
  absl::StatusOr<StartOptions> start = ReadOptions(options);
  if (!start.ok()) return start.status();
  if (absl::Status s = CheckShim(shim); !s.ok()) return s;
  auto running = std::shared_ptr<RunningProfile>(new RunningProfile);
  running->schedule_ = start->profile.schedule;
  running->first_step_ = start->profile.first_step;
  running->results_ = std::make_shared<WindowResults>(start->results);
  start->profile.on_report = [results = running->results_](
                                 const Trace& trace, const Report& report) {
    results->Add(trace, report);
  };
  start->profile.on_job_report = [results =
                                      running->results_](const Report& report) {
    results->SetJob(report);
  };
  running->exchange_ = MakeExchange();
  start->profile.exchange = running->exchange_;
  start->profile.on_run_end = [results =
                                   running->results_](const WholeRun& run) {
    results->SetRun(run);
  };
  const Starting starting = {
      .shim = shim, .sources = start->sources, .results = running->results_};
  t_starting = &starting;
  running->profile_ =
      std::make_unique<Profile>(std::move(start->profile), &PartsOfStarting);
  t_starting = nullptr;
  // If the log directory cannot be written, or a collector cannot record, that
  // error has already been shown, and there will still be a report.
  if (!running->profile_->is_active()) return running->profile_->status();
  return running;
}

void RunningProfile::BeginStep() {
  const std::lock_guard lock(mutex_);
  profile_->BeginStep();
}

int RunningProfile::Step() {
  const std::lock_guard lock(mutex_);
  const int ready = results_->ready();
  profile_->Step();
  ++steps_;
  // The phase of the step that begins now, which STEPSCOPE_STEP_RECORDING
  // describes.
  const SchedulePhase phase = PlaceOf(schedule_, steps_).phase;
  int flags = 0;
  if (phase == SchedulePhase::kWarmup || phase == SchedulePhase::kActive) {
    flags |= STEPSCOPE_STEP_RECORDING;
  }
  if (phase == SchedulePhase::kDone) flags |= STEPSCOPE_STEP_DONE;
  if (profile_->is_ending()) flags |= STEPSCOPE_STEP_ENDING;
  if (ready > shown_) {
    flags |= STEPSCOPE_STEP_WINDOW;
    shown_ = ready;
  }
  return flags;
}

absl::Status RunningProfile::Finish() {
  const std::lock_guard lock(mutex_);
  finished_.store(true, std::memory_order_relaxed);
  absl::Status status = profile_->Finish();
  // A window that is still being analysed after stop_timeout must not call into
  // an interpreter that is shutting down.
  if (exchange_ != nullptr) exchange_->Close(kLastCall);
  return status;
}

bool RunningProfile::IsEnding() {
  const std::lock_guard lock(mutex_);
  return profile_->is_ending();
}

// Files that are still missing after the end will never come.
int RunningProfile::Windows() const {
  return finished_.load(std::memory_order_relaxed) ? results_->count()
                                                   : results_->ready();
}

absl::StatusOr<std::string> RunningProfile::Get(int window,
                                                std::string_view what) const {
  // The plan is known from the start. All other texts belong to a window.
  if (what == "plan") return PlanText(schedule_, first_step_);
  return results_->Get(window, what);
}

}  // namespace stepscope
