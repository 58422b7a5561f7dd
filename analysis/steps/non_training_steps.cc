#include "steps/non_training_steps.h"

#include <utility>
#include <vector>

namespace stepscope {
namespace {

// Thresholds of our own choice. Times are multiples of the usual step's figure.
// A step is slow at the same 1.2 times as for warm-up.
constexpr double kSlowStepTimes = 1.2;
// The share of the time beyond the usual step that one reason must explain.
constexpr double kMinExplainedExcess = 0.5;
constexpr int64_t kLargeCopyBytes = 16 << 20;  // 16 MiB: a small model
constexpr double kUnusualTimes = 10;           // times the median step
constexpr double kExtraForwardTimes = 1.5;     // times the usual forward work
constexpr double kSameBackwardTimes = 1.1;
constexpr double kMaxNonTrainingFrac = 1.0 / 3;
// With two steps it is unclear which one is the usual one.
constexpr size_t kMinSteps = 3;

// Time beyond the usual step; negative for a fast step.
double ExcessNs(const StepFacts& step, const UsualStep& usual) {
  return static_cast<double>(step.length_ns) - usual.length_ns;
}

}  // namespace

bool IsSlow(const StepFacts& step, const UsualStep& usual) {
  return ExcessNs(step, usual) >= (kSlowStepTimes - 1) * usual.length_ns;
}

bool SavesModel(const StepFacts& step, const UsualStep& usual) {
  const auto copied = static_cast<double>(step.to_host_bytes);
  return usual.parameter_bytes > 0 &&
         copied >= 0.5 * static_cast<double>(usual.parameter_bytes) &&
         copied >= kUnusualTimes * usual.to_host_bytes;
}

bool IsCheckpoint(const StepFacts& step, const UsualStep& usual) {
  if (!IsSlow(step, usual)) return false;
  const double own = kMinExplainedExcess * ExcessNs(step, usual);
  if (static_cast<double>(step.gc_ns) >= own ||
      static_cast<double>(step.loading_ns) - usual.loading_ns >= own) {
    return false;  // other rules report garbage collection and loading
  }
  // The copied amount must be as large as a model, and far more than in the
  // usual step, which may also read back its loss or its samples.
  const bool copies = step.to_host_bytes >= kLargeCopyBytes &&
                      static_cast<double>(step.to_host_bytes) >=
                          kUnusualTimes * usual.to_host_bytes;
  const bool writes = step.written_bytes >= kWrittenBytes &&
                      static_cast<double>(step.written_bytes) >=
                          kUnusualTimes * usual.written_bytes;
  return SavesModel(step, usual) || copies || writes ||
         static_cast<double>(step.logging_ns) >= own;
}

bool IsValidation(const StepFacts& step, const UsualStep& usual) {
  const auto forward = static_cast<double>(step.forward);
  const auto backward = static_cast<double>(step.backward);
  // A run that only infers has no backward pass anywhere.
  const bool trains = usual.backward > 0;
  if (trains && step.backward == 0 && step.forward > 0) return true;
  if (!IsSlow(step, usual)) return false;
  if (trains && usual.forward > 0 &&
      forward >= kExtraForwardTimes * usual.forward &&
      backward <= kSameBackwardTimes * usual.backward) {
    return true;
  }
  const auto validation = static_cast<double>(step.validation_ns);
  return validation >= kMinExplainedExcess * ExcessNs(step, usual) &&
         usual.validation_ns < 0.5 * validation;
}

void MarkNonTrainingSteps(const Trace& trace, const OpTree& tree,
                          const std::vector<StepFacts>& facts, Steps& steps) {
  if (steps.windows.size() < kMinSteps) return;
  const UsualStep usual = UsualOf(trace, tree, steps, facts);
  std::vector<StepKind> kinds;
  size_t non_training = 0;
  for (size_t i = 0; i < facts.size(); ++i) {
    StepKind kind = steps.windows[i].kind;
    if (kind != StepKind::kWarmUp) {
      if (IsValidation(facts[i], usual))
        kind = StepKind::kValidation;
      else if (IsCheckpoint(facts[i], usual))
        kind = StepKind::kCheckpoint;
    }
    non_training +=
        kind == StepKind::kValidation || kind == StepKind::kCheckpoint;
    kinds.push_back(kind);
  }
  // Work that recurs in more than a third of the steps is part of how this run
  // works, and a mean without those steps would not describe the run.
  if (non_training == 0 ||
      static_cast<double>(non_training) >
          kMaxNonTrainingFrac * static_cast<double>(facts.size())) {
    return;
  }
  std::vector<size_t> steady;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == StepKind::kSteady) steady.push_back(i);
  }
  if (steady.empty()) return;
  for (size_t i = 0; i < kinds.size(); ++i) steps.windows[i].kind = kinds[i];
  steps.steady = std::move(steady);
}

}  // namespace stepscope
