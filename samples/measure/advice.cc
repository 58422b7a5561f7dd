#include "advice.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace measure {
namespace {

namespace dom = simdjson::dom;

std::string TextOf(dom::object object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) ? std::string() : std::string(text);
}

double NumberOf(dom::object object, std::string_view key) {
  double number = 0;
  return object[key].get(number) ? 0 : number;
}

// Whole numbers without a point, so that they can be a flag's value.
std::string SettingText(dom::element value) {
  std::string_view text;
  double number = 0;
  if (!value.get(text)) return std::string(text);
  if (value.get(number)) return simdjson::minify(value);
  if (number == std::floor(number) && std::abs(number) < 1e9) {
    return std::to_string(static_cast<int64_t>(number));
  }
  return std::to_string(number);
}

std::map<std::string, std::string> ReadSettings(dom::object object) {
  std::map<std::string, std::string> settings;
  dom::object named;
  if (object["settings"].get(named)) return settings;
  for (const auto& [key, value] : named) {
    settings[std::string(key)] = SettingText(value);
  }
  return settings;
}

AdvisedChange ReadFinding(dom::object finding) {
  AdvisedChange change;
  change.id = TextOf(finding, "id");
  change.severity = TextOf(finding, "severity");
  change.gain_is = TextOf(finding, "gain_is");
  change.evidence = TextOf(finding, "evidence");
  change.where = TextOf(finding, "where");
  dom::object part;
  if (!finding["gain_ms_per_step"].get(part)) {
    change.gain_ms = NumberOf(part, "expected");
    change.gain_low_ms = NumberOf(part, "low");
    change.gain_high_ms = NumberOf(part, "high");
  }
  change.of_ms = NumberOf(finding, "of_ms");
  if (!finding["fix"].get(part)) change.fix = TextOf(part, "cpp");
  change.settings = ReadSettings(finding);
  return change;
}

}  // namespace

bool Advice::Healthy() const {
  return held_back.empty() &&
         std::ranges::none_of(findings, &AdvisedChange::ToBeDone);
}

const AdvisedChange* Advice::Find(std::string_view id) const {
  for (const AdvisedChange& change : findings) {
    if (change.id == id && change.ToBeDone()) return &change;
  }
  return nullptr;
}

PromisedStep PromisedBy(const AdvisedChange& change, const Advice& advice,
                        int period) {
  PromisedStep step{.before_ms = advice.step_ms};
  if (change.of_ms > 0) {
    step.before_ms = change.of_ms;
  } else if (period > 1 && advice.all_mean_ms > 0) {
    step.before_ms = advice.all_mean_ms;
  }
  step.after_ms = step.low_ms = step.high_ms = step.before_ms;
  if (change.gain_ms >= step.before_ms) return step;
  step.after_ms = step.low_ms = step.before_ms - change.gain_ms;
  step.high_ms = step.before_ms - change.gain_low_ms;
  if (change.gain_high_ms < step.before_ms) {
    step.low_ms = step.before_ms - change.gain_high_ms;
  }
  return step;
}

absl::StatusOr<Advice> ParseAdvice(std::string_view json,
                                   const std::string& path) {
  dom::parser parser;
  dom::element root;
  if (auto error = parser.parse(simdjson::padded_string(json)).get(root)) {
    return absl::DataLossError(path + ": " + simdjson::error_message(error));
  }
  int64_t version = 0;
  dom::object steps, run, plan;
  dom::array findings;
  if (root["version"].get(version) || version != 1 ||
      root["steps"].get(steps) || root["findings"].get(findings)) {
    return absl::DataLossError(path + ": no advice of version 1");
  }
  Advice advice;
  advice.path = path;
  advice.step_ms = NumberOf(steps, "mean_ms");
  advice.all_mean_ms = NumberOf(steps, "all_mean_ms");
  advice.steady = static_cast<int>(NumberOf(steps, "steady"));
  advice.cov = NumberOf(steps, "cov");
  if (!(advice.step_ms > 0)) {
    return absl::DataLossError(path + ": no steps were recorded");
  }
  if (!root["run"].get(run)) {
    advice.usable_cores = static_cast<int>(NumberOf(run, "usable_cores"));
  }
  dom::array held_back;
  if (!root["held_back"].get(held_back)) {
    for (dom::element element : held_back) {
      std::string_view id;
      if (!element.get(id)) advice.held_back.emplace_back(id);
    }
  }
  if (!root["plan"].get(plan)) {
    advice.plan = {.settings = ReadSettings(plan),
                   .before_ms = NumberOf(plan, "step_before_ms"),
                   .after_ms = NumberOf(plan, "step_after_ms")};
  }
  for (dom::element element : findings) {
    dom::object finding;
    if (!element.get(finding)) advice.findings.push_back(ReadFinding(finding));
  }
  return advice;
}

}  // namespace measure
