// Functions that python_stacks_test.py calls through ctypes: a Profile, and an
// operator on a thread that Python does not know.
#include <ATen/ATen.h>
#include <stepscope/profile.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace {

using stepscope::Profile;
using stepscope::ProfileOptions;

int32_t NoCalls(void*, uint64_t*, int32_t) { return 0; }

}  // namespace

extern "C" {

// `open_calls` and `describe` may be null: no modules.
void* probe_open(const char* log_dir, int64_t wait, int64_t warmup,
                 int64_t active, int with_stack, decltype(&NoCalls) open_calls,
                 int32_t (*describe)(void*, uint64_t, char*, int32_t)) {
  ProfileOptions options{
      .log_dir = log_dir,
      .schedule = {.wait = wait, .warmup = warmup, .active = active},
      .print_report = false,
      .write_chrome_tb = log_dir[0] != '\0',
      .time_all_steps = false};
  options.with_stack = with_stack != 0;
  options.with_modules = open_calls != nullptr;
  options.module_hook = {.open_calls = open_calls, .describe = describe};
  return new Profile(std::move(options));
}

void probe_step(void* profile) { static_cast<Profile*>(profile)->Step(); }

// Returns 0 on success.
int probe_close(void* profile) {
  const std::unique_ptr<Profile> owned(static_cast<Profile*>(profile));
  return owned->Finish().ok() ? 0 : 1;
}

// Runs an operator on its own thread and waits for it. Returns 1 if it ended in
// time. The caller may hold the interpreter's lock.
int probe_op_on_own_thread(int64_t timeout_ms) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> end = done->get_future();
  std::thread([done] {
    at::ones({2});
    done->set_value();
  }).detach();
  return end.wait_for(std::chrono::milliseconds(timeout_ms)) ==
                 std::future_status::ready
             ? 1
             : 0;
}

}  // extern "C"
