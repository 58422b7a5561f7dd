#include "torch_python.h"

#include <dlfcn.h>
#include <stepscope/event_writer.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "torch_slots.h"

namespace stepscope {
namespace {

using Traceback = std::shared_ptr<torch::CapturedTraceback>;
using Taken = std::vector<std::pair<uint32_t, Traceback>>;  // by sample

constexpr int32_t kMaxOpenCalls = 64;
constexpr int32_t kMaxModuleText = 1024;

// These functions are part of Python's stable ABI.
using IsInitialized = int (*)();
using ThisThreadState = void* (*)();
constinit std::atomic<ThisThreadState> g_this_thread_state{nullptr};

bool IsKnownToPython() {
  const ThisThreadState state =
      g_this_thread_state.load(std::memory_order_relaxed);
  return state != nullptr && state() != nullptr;
}

// The samples that hooks have taken in this window. The mutex is never held
// while the code waits for the interpreter's lock.
struct Samples {
  std::mutex mutex;
  bool is_open = false;
  uint64_t window = 0;
  bool with_stack = false;
  ModuleHook hook;
  Taken unnamed;
  PythonSamples named;
};

// Never destroyed, because a thread may still take a sample when the process
// ends.
Samples& AllSamples() {
  static Samples* const samples = new Samples;
  return *samples;
}

std::vector<uint64_t> OpenCalls(const ModuleHook& hook) {
  std::array<uint64_t, kMaxOpenCalls> calls{};
  const int32_t count =
      std::clamp(hook.open_calls(hook.user, calls.data(), kMaxOpenCalls), 0,
                 kMaxOpenCalls);
  return {calls.begin(), calls.begin() + count};
}

PythonSamples::Module Describe(const ModuleHook& hook, uint64_t call) {
  std::array<char, kMaxModuleText> text{};
  const int32_t size =
      std::clamp(hook.describe(hook.user, call, text.data(), kMaxModuleText), 0,
                 kMaxModuleText);
  const std::string_view all(text.data(), static_cast<size_t>(size));
  const size_t end = std::min(all.find('\n'), all.size());
  return {std::string(all.substr(0, end)),
          std::string(all.substr(std::min(end + 1, all.size())))};
}

std::string FrameText(const torch::unwind::Frame& frame) {
  return frame.filename + "(" + std::to_string(frame.lineno) +
         "): " + frame.funcname;
}

// Returns an empty result if the frames cannot be named.
torch::SymbolizedTracebacks TextsOf(const Taken& taken) {
  std::vector<torch::CapturedTraceback*> tracebacks;
  for (const auto& [number, traceback] : taken) {
    tracebacks.push_back(traceback.get());
  }
  try {
    if (!tracebacks.empty()) return torch::symbolize(tracebacks);
  } catch (const std::exception&) {
    // The operators then have no stacks.
  }
  return {};
}

void AddTexts(const Taken& taken, const torch::SymbolizedTracebacks& texts,
              PythonSamples& named) {
  const auto first = static_cast<uint32_t>(named.frames.size());
  for (const torch::unwind::Frame& frame : texts.all_frames) {
    named.frames.push_back(FrameText(frame));
  }
  named.stacks.resize(named.calls.size());
  for (size_t i = 0; i < std::min(taken.size(), texts.tracebacks.size()); ++i) {
    for (uint64_t frame : texts.tracebacks[i]) {
      named.stacks[taken[i].first].push_back(first +
                                             static_cast<uint32_t>(frame));
    }
  }
}

// False if the process has no interpreter, or if its interpreter does not know
// the calling thread.
bool FindPython() {
  const auto initialized =
      reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  g_this_thread_state.store(reinterpret_cast<ThisThreadState>(dlsym(
                                RTLD_DEFAULT, "PyGILState_GetThisThreadState")),
                            std::memory_order_relaxed);
  return initialized != nullptr && initialized() != 0 && IsKnownToPython();
}

// True if the calling thread was called from Python. A C++ program may also
// contain an interpreter, for other purposes.
bool IsCalledFromPython() {
  if (!FindPython()) return false;
  const torch::SymbolizedTracebacks here =
      TextsOf({{0, torch::CapturedTraceback::gather(true, false, false)}});
  return !here.tracebacks.empty() && !here.tracebacks[0].empty();
}

}  // namespace

bool OpenPythonSamples(bool with_stack, const ModuleHook& modules) {
  const bool has_python = IsCalledFromPython();
  Samples& samples = AllSamples();
  const std::lock_guard lock(samples.mutex);
  samples.is_open = has_python;
  ++samples.window;
  samples.with_stack = with_stack;
  samples.hook = modules;
  samples.unnamed.clear();
  samples.named = {};
  return has_python;
}

void AddPythonSample(bool with_modules) {
  if (!IsKnownToPython()) return;
  Samples& samples = AllSamples();
  bool with_stack = false;
  ModuleHook hook;
  uint64_t window = 0;
  {
    const std::lock_guard lock(samples.mutex);
    if (!samples.is_open) return;
    window = samples.window;
    with_stack = samples.with_stack;
    if (with_modules) hook = samples.hook;
  }
  if (!with_stack && !hook) return;
  // Both calls wait for the interpreter's lock, so our mutex is not held
  // meanwhile.
  Traceback traceback;
  if (with_stack) {
    traceback = torch::CapturedTraceback::gather(
        /*python=*/true, /*script=*/false, /*cpp=*/false);
  }
  std::vector<uint64_t> calls;
  if (hook) calls = OpenCalls(hook);
  uint32_t number = 0;
  {
    const std::lock_guard lock(samples.mutex);
    // While this thread waited for the interpreter, the next window may have
    // opened.
    if (!samples.is_open || samples.window != window) return;
    number = static_cast<uint32_t>(samples.named.calls.size());
    samples.named.calls.push_back(std::move(calls));
    samples.unnamed.emplace_back(number, std::move(traceback));
  }
  WriteScope scope;
  if (!scope) return;
  if (Slot* slot = scope.Reserve(1)) {
    *slot = {{0, 0, 0, PackTail(kPythonSlot, number)}};
  }
}

void NamePythonSamples() {
  if (!IsKnownToPython()) return;
  Samples& samples = AllSamples();
  Taken taken;
  ModuleHook hook;
  std::set<uint64_t> calls;
  {
    const std::lock_guard lock(samples.mutex);
    taken = std::exchange(samples.unnamed, {});
    hook = samples.hook;
    for (const auto& [number, traceback] : taken) {
      const std::vector<uint64_t>& open = samples.named.calls[number];
      calls.insert(open.begin(), open.end());
    }
  }
  // The hook runs Python code, so our mutex is not held while it does.
  for (uint64_t call : calls) {
    PythonSamples::Module module = Describe(hook, call);
    const std::lock_guard lock(samples.mutex);
    samples.named.modules.insert_or_assign(call, std::move(module));
  }
  // If only modules are recorded, samples have no traceback.
  std::erase_if(taken, [](const auto& sample) { return !sample.second; });
  const torch::SymbolizedTracebacks texts = TextsOf(taken);
  const std::lock_guard lock(samples.mutex);
  AddTexts(taken, texts, samples.named);
}

// Describes every call, because otherwise the hook would keep their modules for
// later.
std::string OpenModulePath(const ModuleHook& hook) {
  if (!FindPython()) return "";
  std::string path;
  for (const uint64_t call : OpenCalls(hook)) {
    const PythonSamples::Module module = Describe(hook, call);
    path = module.path.empty() ? module.class_name : module.path;
  }
  return path;
}

PythonSamples ClosePythonSamples() {
  Samples& samples = AllSamples();
  const std::lock_guard lock(samples.mutex);
  samples.is_open = false;
  samples.named.unnamed = static_cast<int64_t>(samples.unnamed.size());
  samples.unnamed.clear();
  samples.named.stacks.resize(samples.named.calls.size());
  return std::exchange(samples.named, {});
}

}  // namespace stepscope
