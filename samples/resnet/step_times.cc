#include "step_times.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace resnet {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

}  // namespace

double StepTimes::MedianMs() const {
  std::vector<double> sorted = step_ms;
  if (sorted.size() > static_cast<size_t>(warm_steps)) {
    sorted.erase(sorted.begin(), sorted.begin() + warm_steps);
  }
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  size_t half = sorted.size() / 2;
  if (sorted.size() % 2 == 1) return sorted[half];
  return (sorted[half - 1] + sorted[half]) / 2;
}

double StepTimes::SamplesPerSecond() const {
  double median_ms = MedianMs();
  return median_ms > 0 ? batch * 1000 / median_ms : 0;
}

std::string StepTimes::ToJson() const {
  std::string out = "{\"step_ms\": [";
  for (size_t i = 0; i < step_ms.size(); ++i) {
    out += (i == 0 ? "" : ", ") + Number(step_ms[i]);
  }
  out += "], \"warm_steps\": " + std::to_string(warm_steps) +
         ", \"batch\": " + std::to_string(batch) +
         ", \"median_ms\": " + Number(MedianMs()) +
         ", \"samples_per_s\": " + Number(SamplesPerSecond()) + ", \"loss\": " +
         (loss && std::isfinite(*loss) ? Number(*loss) : "null") + "}\n";
  return out;
}

absl::Status WriteJson(const StepTimes& times, const std::string& path) {
  std::string text = times.ToJson();
  std::FILE* file = std::fopen(path.c_str(), "w");
  bool ok = file != nullptr &&
            std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) ok = false;
  if (ok) return absl::OkStatus();
  return absl::UnavailableError("cannot write " + path + ": " +
                                std::strerror(errno));
}

}  // namespace resnet
