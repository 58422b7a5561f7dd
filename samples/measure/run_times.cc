#include "run_times.h"

#include <simdjson.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "statistics.h"

namespace measure {

double RunTimes::MedianMs(int period) const {
  std::vector<double> steps = step_ms;
  if (steps.size() > static_cast<size_t>(warm_steps)) {
    steps.erase(steps.begin(), steps.begin() + warm_steps);
  }
  const size_t block = static_cast<size_t>(std::max(1, period));
  if (steps.size() <= block) {  // one block, or the start of one
    return steps.empty() ? 0
                         : std::accumulate(steps.begin(), steps.end(), 0.0) /
                               static_cast<double>(steps.size());
  }
  std::vector<double> means;
  for (size_t begin = 0; begin + block <= steps.size(); begin += block) {
    const auto from = steps.begin() + static_cast<std::ptrdiff_t>(begin);
    means.push_back(
        std::accumulate(from, from + static_cast<std::ptrdiff_t>(block), 0.0) /
        static_cast<double>(block));
  }
  return Median(std::move(means));
}

double RunTimes::SampleMs(int period) const {
  return MedianMs(period) / std::max(1, batch);
}

absl::StatusOr<RunTimes> ParseRunTimes(std::string_view json,
                                       const std::string& what) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return absl::DataLossError(what + ": " + simdjson::error_message(error));
  }
  RunTimes times;
  simdjson::dom::array steps;
  int64_t warm = 0, batch = 0;
  if (root["step_ms"].get(steps) || root["warm_steps"].get(warm) ||
      root["batch"].get(batch) || warm < 0 || batch < 1) {
    return absl::DataLossError(
        what + ": no step_ms, warm_steps and batch as the sample writes them");
  }
  for (simdjson::dom::element step : steps) {
    double ms = 0;
    if (step.get(ms) || !(ms > 0)) {
      return absl::DataLossError(what + ": a step took no time");
    }
    times.step_ms.push_back(ms);
  }
  if (times.step_ms.empty()) return absl::DataLossError(what + ": no steps");
  times.warm_steps = static_cast<int>(std::min<int64_t>(warm, INT32_MAX));
  times.batch = static_cast<int>(std::min<int64_t>(batch, INT32_MAX));
  return times;
}

JsonObject ToJson(const RunTimes& times) {
  JsonObject json;
  json.Add("step_ms", times.step_ms);
  json.Add("warm_steps", times.warm_steps);
  json.Add("batch", times.batch);
  return json;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError("cannot read " + path + ": " +
                               std::strerror(errno));
  }
  return text;
}

}  // namespace measure
