#include "expectation.h"

#include <absl/status/statusor.h>
#include <stepscope/logdir.h>
#include <stepscope/read.h>
#include <stepscope/what_if.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>
#include <variant>

#include "measure/comparison.h"
#include "measure/remedies.h"

namespace cube {
namespace {

using measure::Settings;
using stepscope::Change;
using stepscope::Setting;
using stepscope::WhatIf;

// LOGDIR/stepscope/RUN/c<cycle> holds the trace beside the advice.
absl::StatusOr<stepscope::Trace> ReadRecording(const measure::Advice& advice) {
  const std::filesystem::path cycle =
      std::filesystem::path(advice.path).parent_path().parent_path();
  const absl::StatusOr<stepscope::ResolvedRun> run =
      stepscope::ResolvePath(cycle.string());
  if (!run.ok()) return run.status();
  return stepscope::ReadTrace(run->trace_files.front());
}

bool Same(const Settings& a, const Settings& b) {
  return measure::Spelled(a) == measure::Spelled(b);
}

std::string TextOf(const Setting& setting) {
  if (const auto* is = std::get_if<bool>(&setting.value)) {
    return *is ? "true" : "false";
  }
  if (const auto* number = std::get_if<int64_t>(&setting.value)) {
    return std::to_string(*number);
  }
  return std::get<std::string>(setting.value);
}

// What a flag with that value may stand for, by the report's names.
std::vector<Setting> MayStandFor(const std::string& value) {
  std::vector<Setting> settings = {
      {"set_to_none", true},
      {"validation_gradients", false},
      {"anomaly_mode", false},
      {"memory_format", std::string("channels_last")},
      {"optimizer_step", value}};
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    return settings;
  }
  for (const char* key : {"workers", "intra_op_threads", "batch_size"}) {
    settings.push_back({key, number});
  }
  return settings;
}

// True if following `finding` is to go from `before` to `after`, and all of it.
bool LeadsTo(const measure::AdvisedChange& finding,
             const measure::Advice& advice, const Settings& before,
             const Settings& after) {
  if (!Same(measure::Follow(finding, advice, before), after)) return false;
  // Where it names no settings, flags beside this one may cause it, too.
  return !finding.settings.empty() ||
         Same(measure::Follow(finding, advice, after), after);
}

// The change that a flag at one of its values makes to the baseline; nothing
// if replay cannot express it.
std::optional<Change> ChangeOf(const WhatIf& what_if,
                               const measure::Factor& factor, size_t level,
                               const Settings& baseline,
                               const measure::Advice& advice) {
  const Settings after = measure::At(factor, level, baseline);
  if (Same(after, baseline)) return Change();
  for (const Setting& setting : MayStandFor(factor.levels[level])) {
    const Change change{.settings = {setting}};
    const Settings set =
        measure::FollowNames({{setting.key, TextOf(setting)}}, baseline);
    if (Same(set, after) && what_if.Predict(change)) return change;
  }
  for (const measure::AdvisedChange& finding : advice.findings) {
    const Change change{.findings = {finding.id}};
    if (LeadsTo(finding, advice, baseline, after) && what_if.Predict(change)) {
      return change;
    }
  }
  return std::nullopt;
}

// By factor and level.
using Changes = std::map<std::pair<size_t, size_t>, std::optional<Change>>;

// Of all values that any point has.
Changes ChangesOf(const WhatIf& what_if, const measure::Advice& advice,
                  const Cube& cube) {
  Changes changes;
  for (const measure::Point& point : cube.points) {
    for (size_t f = 0; f < cube.factors.size(); ++f) {
      const size_t level = point.levels[f];
      if (changes.contains({f, level})) continue;
      changes[{f, level}] = ChangeOf(what_if, cube.factors[f], level,
                                     cube.points[0].settings, advice);
    }
  }
  return changes;
}

// All changes that lead to a point; nothing if one of them is not known.
std::optional<Change> ChangeAt(const Changes& changes,
                               const std::vector<size_t>& levels) {
  Change all;
  for (size_t f = 0; f < levels.size(); ++f) {
    const std::optional<Change>& one = changes.at({f, levels[f]});
    if (!one) return std::nullopt;
    all.findings.insert(all.findings.end(), one->findings.begin(),
                        one->findings.end());
    all.settings.insert(all.settings.end(), one->settings.begin(),
                        one->settings.end());
  }
  return all;
}

// Samples per second with a gain of so many ms of a step / without it. A gain
// of the whole step is no promise.
std::optional<Ratio> RatioOf(const stepscope::Gain& gain, double step_ms) {
  const auto faster = [&](double ms) {
    return ms < step_ms ? step_ms / (step_ms - ms)
                        : std::numeric_limits<double>::infinity();
  };
  if (gain.expected_ms >= step_ms) return std::nullopt;
  return Ratio{faster(gain.expected_ms),
               {faster(gain.low_ms), faster(gain.high_ms)}};
}

// The step whose time a run of the baseline tells.
double StepMs(const measure::Advice& advice, const Settings& baseline) {
  return measure::PromisedBy({}, advice, measure::PeriodOf(baseline)).before_ms;
}

}  // namespace

Expectation Expect(const measure::Advice& advice, const Cube& cube) {
  Expectation expected;
  expected.points.resize(cube.points.size());
  const absl::StatusOr<stepscope::Trace> recording = ReadRecording(advice);
  if (!recording.ok()) {
    expected.why_not = std::string(recording.status().message());
    return expected;
  }
  const WhatIf what_if(*recording);
  expected.why_not = what_if.why_not();
  if (!expected.why_not.empty()) return expected;

  const Settings& baseline = cube.points[0].settings;
  const double step_ms = StepMs(advice, baseline);
  const Changes changes = ChangesOf(what_if, advice, cube);
  for (const auto& [value, change] : changes) {
    if (change) continue;
    expected.unknown.push_back(
        LevelText(cube.factors[value.first], value.second));
  }
  for (size_t p = 0; p < cube.points.size(); ++p) {
    const std::optional<Change> change =
        ChangeAt(changes, cube.points[p].levels);
    if (!change) continue;
    const std::optional<stepscope::Gain> gain = what_if.Predict(*change);
    if (gain) expected.points[p] = RatioOf(*gain, step_ms);
  }
  return expected;
}

Cube AsCube(const Expectation& expected, const Cube& cube) {
  Cube as_measured{.factors = cube.factors, .points = {}, .rates = {}};
  for (size_t p = 0; p < cube.points.size(); ++p) {
    const std::optional<Ratio>& figure = expected.points[p];
    if (!figure) continue;
    as_measured.points.push_back(cube.points[p]);
    as_measured.rates.push_back({figure->value, figure->value});
  }
  return as_measured;
}

}  // namespace cube
