// Names for user code: UserRange, PhaseRange and ModuleRange mark a stretch of
// the calling thread. Outside a window each costs one relaxed load; inside, two
// timestamps and a copy of its text. Any thread may use them, nested as scopes
// nest; each must end on the thread that made it.
#pragma once

#include <stepscope/event_buffer.h>

#include <cstdint>
#include <string_view>

namespace stepscope {

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
