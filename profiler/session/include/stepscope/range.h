// Names for user code: UserRange, PhaseRange and ModuleRange mark a stretch of
// the calling thread. Outside a window each costs one relaxed load; inside, two
// timestamps and a copy of its text. Any thread may use them, nested as scopes
// nest; each must end on the thread that made it.
#pragma once

#include <stepscope/event.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace stepscope {

namespace internal {
// The number of the open window, 0 while none is. Never reused.
extern std::atomic<uint64_t> g_window;
}  // namespace internal

// True while a window is open. One relaxed load: ask it before preparing the
// text of a range.
inline bool IsRecording() noexcept {
  return internal::g_window.load(std::memory_order_relaxed) != 0;
}

// A range that was opened; empty if nothing was recorded.
struct RangeToken {
  void* slot = nullptr;
  uint64_t window = 0;
};

// Opens a range on the calling thread: name and detail are copied, at most 480
// bytes each; a longer text is cut and the cut counted. Does nothing while no
// window is open.
RangeToken OpenRange(RangeKind kind, std::string_view name,
                     std::string_view detail = {}) noexcept;

// Closes it. Harmless for an empty token, and when its window has closed.
void CloseRange(const RangeToken& token) noexcept;

// A range of the kind given; what the three below have in common.
class ScopedRange {
 public:
  ScopedRange(RangeKind kind, std::string_view name,
              std::string_view detail = {}) noexcept {
    if (IsRecording()) token_ = OpenRange(kind, name, detail);
  }
  ~ScopedRange() { End(); }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

  // Ends it before its scope does; harmless if called again.
  void End() noexcept {
    if (token_.window == 0) return;
    CloseRange(token_);
    token_ = RangeToken();
  }

 private:
  RangeToken token_;
};

// A scope with a name: `stepscope::UserRange range("augment");`. Names that
// torch.profiler gives a meaning ("Optimizer.step#SGD.step", "nccl:...") have
// it here, too. (Range is the row of a Trace, event.h.)
class UserRange : public ScopedRange {
 public:
  explicit UserRange(std::string_view name) noexcept
      : ScopedRange(RangeKind::kUser, name) {}
};

// The parts of a training step that reports tell apart.
enum class Phase : uint8_t {
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kValidate
};

// "data", "forward", "backward", "optimizer", "validate".
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

// The forward pass of a module: its path in the model and its class, as
// `ModuleRange module("layer1.0.conv1", "Conv2d");`.
class ModuleRange : public ScopedRange {
 public:
  ModuleRange(std::string_view path, std::string_view class_name) noexcept
      : ScopedRange(RangeKind::kModule, path, class_name) {}
};

}  // namespace stepscope
