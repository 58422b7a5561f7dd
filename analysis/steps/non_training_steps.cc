#include "steps/non_training_steps.h"

#include <utility>
#include <vector>

namespace stepscope {
namespace {

// As for warm-up.
constexpr double kSlowStep = 1.2;
constexpr double kMostOfTheStall = 0.5;
constexpr int64_t kLargeCopyBytes = 16 << 20;
constexpr double kUnusual = 10;       // times the median step
constexpr double kFurtherPass = 1.5;  // times the usual forward work
constexpr double kSameBackward = 1.1;
constexpr double kMostOddSteps = 1.0 / 3;
constexpr size_t kStepsToCompare = 3;

double ExcessNs(const StepFacts& step, const UsualStep& usual) {
  return static_cast<double>(step.length_ns) - usual.length_ns;
}

}  // namespace

bool IsSlow(const StepFacts& step, const UsualStep& usual) {
  return ExcessNs(step, usual) >= (kSlowStep - 1) * usual.length_ns;
}

bool SavesModel(const StepFacts& step, const UsualStep& usual) {
  const auto copied = static_cast<double>(step.to_host_bytes);
  return usual.parameter_bytes > 0 &&
         copied >= 0.5 * static_cast<double>(usual.parameter_bytes) &&
         copied >= kUnusual * usual.to_host_bytes;
}

bool IsCheckpoint(const StepFacts& step, const UsualStep& usual) {
  if (!IsSlow(step, usual)) return false;
  const double own = kMostOfTheStall * ExcessNs(step, usual);
  if (static_cast<double>(step.gc_ns) >= own ||
      static_cast<double>(step.loading_ns) - usual.loading_ns >= own) {
    return false;  // gc-pause, or a loader that starts again
  }
  const bool copies =
      step.to_host_bytes >= kLargeCopyBytes &&
      static_cast<double>(step.to_host_bytes) >= kUnusual * usual.to_host_bytes;
  const bool writes =
      step.written_bytes >= kWrittenBytes &&
      static_cast<double>(step.written_bytes) >= kUnusual * usual.written_bytes;
  return SavesModel(step, usual) || copies || writes ||
         static_cast<double>(step.logging_ns) >= own;
}

bool IsValidation(const StepFacts& step, const UsualStep& usual) {
  const auto forward = static_cast<double>(step.forward);
  const auto backward = static_cast<double>(step.backward);
  const bool trains = usual.backward > 0;
  if (trains && step.backward == 0 && step.forward > 0) return true;
  if (!IsSlow(step, usual)) return false;
  if (trains && usual.forward > 0 && forward >= kFurtherPass * usual.forward &&
      backward <= kSameBackward * usual.backward) {
    return true;
  }
  const auto validation = static_cast<double>(step.validation_ns);
  return validation >= kMostOfTheStall * ExcessNs(step, usual) &&
         usual.validation_ns < 0.5 * validation;
}

void MarkNonTrainingSteps(const Trace& trace, const OpTree& tree,
                          Steps& steps) {
  if (steps.windows.size() < kStepsToCompare) return;
  const std::vector<StepFacts> facts = FactsOf(trace, tree, steps);
  const UsualStep usual = UsualOf(trace, tree, steps, facts);
  std::vector<StepKind> kinds;
  size_t odd = 0;
  for (size_t i = 0; i < facts.size(); ++i) {
    StepKind kind = steps.windows[i].kind;
    if (kind != StepKind::kWarmUp) {
      if (IsValidation(facts[i], usual))
        kind = StepKind::kValidation;
      else if (IsCheckpoint(facts[i], usual))
        kind = StepKind::kCheckpoint;
    }
    odd += kind == StepKind::kValidation || kind == StepKind::kCheckpoint;
    kinds.push_back(kind);
  }
  if (odd == 0 || static_cast<double>(odd) >
                      kMostOddSteps * static_cast<double>(facts.size())) {
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
