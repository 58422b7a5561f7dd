#include "steps/step_window.h"

#include <algorithm>

namespace stepscope {

const char* StepKindName(StepKind kind) {
  switch (kind) {
    case StepKind::kSteady:
      return "steady";
    case StepKind::kWarmUp:
      return "warm-up";
    case StepKind::kOutlier:
      return "slow";
    case StepKind::kValidation:
      return "validation";
    case StepKind::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half]
                           : (values[half - 1] + values[half]) / 2;
}

}  // namespace stepscope
