// Ranges name parts of a program in the trace. UserRange, PhaseRange and
// ModuleRange last from their construction to the end of their scope. Outside a
// recorded window each costs one relaxed load; inside, two timestamps and a
// copy of the text. Any thread may use them. A range must end on its own
// thread, and ranges nest as scopes do.
#pragma once

#include <stepscope/event.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace stepscope {

namespace internal {
// The number of the open window, or 0 if none is open. Never reused.
extern std::atomic<uint64_t> g_window;
}  // namespace internal

// True while a window is open. Check this before composing the text of a range.
// One relaxed load.
inline bool IsRecording() noexcept {
  return internal::g_window.load(std::memory_order_relaxed) != 0;
}

// A range that was opened; empty if nothing was recorded.
struct RangeToken {
  void* slot = nullptr;
  uint64_t window = 0;
};

// Opens a range on the calling thread. Copies name and detail, at most 480
// bytes each; the Trace says how many texts were cut. Does nothing while no
// window is open. Prefer the classes below, which close their range.
RangeToken OpenRange(RangeKind kind, std::string_view name,
                     std::string_view detail = {}) noexcept;

// Closes a range. Does nothing for an empty token, or if the window has closed.
void CloseRange(const RangeToken& token) noexcept;

// A range of any kind, and the base of the three classes below.
class ScopedRange {
 public:
  ScopedRange(RangeKind kind, std::string_view name,
              std::string_view detail = {}) noexcept {
    if (IsRecording()) token_ = OpenRange(kind, name, detail);
  }
  ~ScopedRange() { End(); }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

  // Ends the range before the end of its scope. May be called more than once.
  void End() noexcept {
    if (token_.window == 0) return;
    CloseRange(token_);
    token_ = RangeToken();
  }

 private:
  RangeToken token_;
};

// A named scope: `stepscope::UserRange range("augment");`. Names with a meaning
// in torch.profiler ("Optimizer.step#SGD.step", "nccl:...") keep that meaning.
// (The name Range is taken by a row of the Trace, event.h.)
class UserRange : public ScopedRange {
 public:
  explicit UserRange(std::string_view name) noexcept
      : ScopedRange(RangeKind::kUser, name) {}
};

// The phases of a training step in reports.
enum class Phase : uint8_t {
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kValidate
};

// Returns "data", "forward", "backward", "optimizer" or "validate".
constexpr std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kData:
      return "data";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kValidate:
      return "validate";
  }
  return "";
}

// A phase of a step: `stepscope::PhaseRange phase(stepscope::Phase::kForward);`
class PhaseRange : public ScopedRange {
 public:
  explicit PhaseRange(Phase phase) noexcept
      : ScopedRange(RangeKind::kPhase, PhaseName(phase)) {}
};

// The forward pass of a module, by its path in the model and its class:
// `stepscope::ModuleRange module("layer1.0.conv1", "Conv2d");`
class ModuleRange : public ScopedRange {
 public:
  ModuleRange(std::string_view path, std::string_view class_name) noexcept
      : ScopedRange(RangeKind::kModule, path, class_name) {}
};

}  // namespace stepscope
