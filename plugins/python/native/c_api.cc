// The functions of stepscope_c.h. Each checks its arguments, calls the C++ code
// behind it, and turns exceptions and statuses into numbers.
#include <stepscope/batches.h>
#include <stepscope/range.h>
#include <stepscope/version.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "handles.h"
#include "jobs.h"
#include "json_request.h"
#include "running_profile.h"
#include "stepscope_c.h"
#include "thread_ranges.h"

namespace stepscope {
namespace {

// Never destroyed: calls may come until the process ends.
Handles<RunningProfile>& Profiles() {
  // The upper half of a handle is its kind, 1 here and 2 for loaders, so that a
  // handle of one kind is never valid for the other.
  static auto* const profiles = new Handles<RunningProfile>(uint64_t{1} << 32);
  return *profiles;
}

Handles<LoaderRegistration>& Loaders() {
  static auto* const loaders =
      new Handles<LoaderRegistration>(uint64_t{2} << 32);
  return *loaders;
}

// One text per thread, so that a failure on another thread does not replace it
// before the caller asks for it.
std::string& LastError() {
  thread_local std::string error;
  return error;
}

int Fail(int code, std::string_view message) {
  LastError() = message;
  return code;
}

// Callers can act on a wrong argument, because it is their own mistake. All
// other codes mean the same to them, and the text has the details.
int Fail(const absl::Status& status) {
  const auto message = status.message();
  return Fail(status.code() == absl::StatusCode::kInvalidArgument
                  ? STEPSCOPE_E_ARGUMENT
                  : STEPSCOPE_E_FAILED,
              {message.data(), message.size()});
}

int NoHandle(const char* what) {
  return Fail(STEPSCOPE_E_HANDLE,
              std::string("this is not the handle of an open ") + what);
}

int NoPointer(const char* name) {
  return Fail(STEPSCOPE_E_ARGUMENT, std::string(name) + " is null");
}

// No C++ exception may reach the caller.
template <typename Function>
int Guarded(Function function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return STEPSCOPE_E_FAILED;  // a message would need memory
  } catch (const std::exception& error) {
    try {
      return Fail(STEPSCOPE_E_FAILED, error.what());
    } catch (...) {
      return STEPSCOPE_E_FAILED;
    }
  } catch (...) {
    return STEPSCOPE_E_FAILED;
  }
}

int GiveText(const absl::StatusOr<std::string>& text, char** result) {
  if (!text.ok()) return Fail(text.status());
  *result = static_cast<char*>(std::malloc(text->size() + 1));
  if (*result == nullptr) return Fail(STEPSCOPE_E_FAILED, "out of memory");
  std::memcpy(*result, text->c_str(), text->size() + 1);
  return STEPSCOPE_OK;
}

int AddLoader(const char* text, uint64_t* handle) {
  absl::StatusOr<JsonRequest> request = JsonRequest::Parse(text);
  if (!request.ok()) return Fail(request.status());
  LoaderFacts facts;
  facts.name = request->Text("name");
  facts.kind = request->Text("kind");
  facts.workers = static_cast<int32_t>(request->Whole("workers", -1));
  facts.batch_size = request->Whole("batch_size", -1);
  // LoaderFacts stores 0, 1 or -1 (unknown) in a byte. Other numbers are
  // clamped, because a cast would cut them to their low bits.
  const auto flag = [&](std::string_view key) {
    return static_cast<int8_t>(
        std::clamp<int64_t>(request->Whole(key, -1), -1, 1));
  };
  facts.pin_memory = flag("pin_memory");
  facts.persistent_workers = flag("persistent_workers");
  facts.prefetch_factor =
      static_cast<int32_t>(request->Whole("prefetch_factor", -1));
  if (absl::Status s = request->Check(); !s.ok()) return Fail(s);
  *handle = Loaders().Add(std::make_shared<LoaderRegistration>(facts));
  return STEPSCOPE_OK;
}

int OpenRangeOfKind(int kind, const char* name, const char* detail,
                    uint64_t* range) {
  // In the order of STEPSCOPE_RANGE_*.
  constexpr RangeKind kKinds[] = {RangeKind::kUser, RangeKind::kPhase,
                                  RangeKind::kModule};
  if (kind < 0 || kind >= static_cast<int>(std::size(kKinds))) {
    return Fail(STEPSCOPE_E_ARGUMENT,
                "a range is of kind 0 (user), 1 (phase) or 2 (module), not " +
                    std::to_string(kind));
  }
  *range = OpenThreadRange(kKinds[kind], name, detail == nullptr ? "" : detail);
  return STEPSCOPE_OK;
}

}  // namespace
}  // namespace stepscope

using stepscope::Fail;
using stepscope::GiveText;
using stepscope::Guarded;
using stepscope::Loaders;
using stepscope::NoHandle;
using stepscope::NoPointer;
using stepscope::Profiles;

extern "C" {

int stepscope_abi_version(void) { return STEPSCOPE_ABI_VERSION; }

const char* stepscope_version(void) { return stepscope::Version(); }

const char* stepscope_shim_id(void) { return stepscope::ShimId(); }

const char* stepscope_last_error(void) {
  return stepscope::LastError().c_str();
}

int stepscope_call(const char* name, const char* request, char** result) {
  return Guarded([&] {
    if (result == nullptr) return NoPointer("result");
    // Set before anything can fail, because a caller may free the result even
    // after an error.
    *result = nullptr;
    if (name == nullptr) return NoPointer("name");
    return GiveText(stepscope::RunJob(name, request), result);
  });
}

void stepscope_free(char* text) { std::free(text); }

int stepscope_profile_start(const char* options, const stepscope_shim* shim,
                            uint64_t* handle) {
  return Guarded([&] {
    if (handle == nullptr) return NoPointer("handle");
    *handle = 0;
    auto started = stepscope::RunningProfile::Start(options, shim);
    if (!started.ok()) return Fail(started.status());
    *handle = Profiles().Add(*std::move(started));
    return STEPSCOPE_OK;
  });
}

int stepscope_module_hook(stepscope_open_calls open_calls,
                          stepscope_describe describe, void* user) {
  return Guarded([&] {
    // Reject half a hook, which would lead to a call through null in the middle
    // of a window.
    if ((open_calls == nullptr) != (describe == nullptr)) {
      return NoPointer(open_calls == nullptr ? "open_calls" : "describe");
    }
    stepscope::SetModuleHook(
        {.user = user, .open_calls = open_calls, .describe = describe});
    return STEPSCOPE_OK;
  });
}

int stepscope_exchange(stepscope_put put, stepscope_get get, void* user) {
  return Guarded([&] {
    if ((put == nullptr) != (get == nullptr)) {
      return NoPointer(put == nullptr ? "put" : "get");
    }
    stepscope::SetExchangeHook({.put = put, .get = get, .user = user});
    return STEPSCOPE_OK;
  });
}

int stepscope_profile_begin_step(uint64_t handle) {
  return Guarded([&] {
    const auto profile = Profiles().Get(handle);
    if (profile == nullptr) return NoHandle("profile");
    profile->BeginStep();
    return STEPSCOPE_OK;
  });
}

int stepscope_profile_step(uint64_t handle) {
  return Guarded([&] {
    const auto profile = Profiles().Get(handle);
    return profile == nullptr ? NoHandle("profile") : profile->Step();
  });
}

int stepscope_profile_finish(uint64_t handle) {
  return Guarded([&] {
    const auto profile = Profiles().Get(handle);
    if (profile == nullptr) return NoHandle("profile");
    const absl::Status status = profile->Finish();
    return status.ok() ? STEPSCOPE_OK : Fail(status);
  });
}

int stepscope_profile_ending(uint64_t handle) {
  return Guarded([&] {
    const auto profile = Profiles().Get(handle);
    if (profile == nullptr) return NoHandle("profile");
    // 1 or 0, because errors are negative numbers in the same return value.
    return profile->IsEnding() ? 1 : 0;
  });
}

int stepscope_profile_windows(uint64_t handle) {
  return Guarded([&] {
    const auto profile = Profiles().Get(handle);
    return profile == nullptr ? NoHandle("profile") : profile->Windows();
  });
}

int stepscope_profile_report(uint64_t handle, int window, const char* what,
                             char** result) {
  return Guarded([&] {
    if (result == nullptr) return NoPointer("result");
    *result = nullptr;
    if (what == nullptr) return NoPointer("what");
    const auto profile = Profiles().Get(handle);
    if (profile == nullptr) return NoHandle("profile");
    return GiveText(profile->Get(window, what), result);
  });
}

int stepscope_profile_close(uint64_t handle) {
  return Guarded([&] {
    // Take it before it finishes, so that no later call finds it. Calls that
    // already hold it keep it alive.
    const auto profile = Profiles().Take(handle);
    if (profile == nullptr) return NoHandle("profile");
    const absl::Status status = profile->Finish();
    return status.ok() ? STEPSCOPE_OK : Fail(status);
  });
}

// Callers read the word at this address instead of calling a function. This
// works because a lock-free atomic of this size consists only of that word.
const uint64_t* stepscope_window(void) {
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  return reinterpret_cast<const uint64_t*>(&stepscope::internal::g_window);
}

int stepscope_range_open(int kind, const char* name, const char* detail,
                         uint64_t* range) {
  return Guarded([&] {
    if (range == nullptr) return NoPointer("range");
    *range = 0;
    if (name == nullptr) return NoPointer("name");
    return stepscope::OpenRangeOfKind(kind, name, detail, range);
  });
}

int stepscope_range_close(uint64_t range) {
  return Guarded([&] {
    // 0 is what stepscope_range_open() gives if no window is open.
    if (range == 0 || stepscope::CloseThreadRange(range)) return STEPSCOPE_OK;
    return Fail(STEPSCOPE_E_HANDLE, "this thread has no such range open");
  });
}

int stepscope_loader_add(const char* facts, uint64_t* handle) {
  return Guarded([&] {
    if (handle == nullptr) return NoPointer("handle");
    *handle = 0;
    if (facts == nullptr) return NoPointer("facts");
    return stepscope::AddLoader(facts, handle);
  });
}

int stepscope_loader_wait(uint64_t handle) {
  return Guarded([&] {
    const auto loader = Loaders().Get(handle);
    if (loader == nullptr) return NoHandle("loader");
    loader->MarkWait();
    return STEPSCOPE_OK;
  });
}

int stepscope_loader_remove(uint64_t handle) {
  return Guarded([&] {
    return Loaders().Take(handle) == nullptr ? NoHandle("loader")
                                             : STEPSCOPE_OK;
  });
}

}  // extern "C"
