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

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(std::max<size_t>(values.size(), 1));
}

}  // namespace stepscope
