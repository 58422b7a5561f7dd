// Predicts the step time under other settings.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>
#include <stepscope/what_if.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace stepscope {

struct Prediction {
  Change change;
  // The mean steady step, without the recorder if its cost is known, as gains
  // of the report count; 0: no steps.
  double baseline_ms = 0;
  // The part of the recorded step in which the thread waited for a free core,
  // which replay keeps; 0 if it is small.
  double contended_ms = 0;
  Gain gain;
  std::string why_not;  // empty if `gain` is predicted
  // A smaller number of loader workers than in `change` with the same step
  // time, as printed by ToText(); 0 if there is none.
  int64_t enough_workers = 0;
};

// Reads "id,id" and words such as "workers=2". Errors: InvalidArgument (no rule
// has the ID, or no setting has that key or value).
absl::StatusOr<Change> ReadChange(std::string_view findings,
                                  std::span<const std::string> settings);

Prediction Predict(const Trace& trace, const Change& change);

// As text for a terminal, and as one JSON object (docs/json.md).
std::string ToText(const Prediction& prediction);
std::string ToJson(const Prediction& prediction);

}  // namespace stepscope
