#include "measure/json_text.h"
#include "report.h"

namespace climb {
namespace {

using measure::Interval;
using measure::JsonObject;

JsonObject ToObject(const Interval& interval) {
  JsonObject json;
  json.Add("low", interval.low);
  json.Add("high", interval.high);
  return json;
}

const char* OutcomeName(measure::Outcome outcome) {
  switch (outcome) {
    case measure::Outcome::kFaster:
      return "faster";
    case measure::Outcome::kSlower:
      return "slower";
    case measure::Outcome::kUnclear:
      return "unclear";
  }
  return "";
}

JsonObject ToObject(const Step& step) {
  const measure::Comparison& measured = step.measured;
  JsonObject json;
  json.Add("id", step.id);
  json.Add("gain_is", step.gain_is);
  json.Add("change", measure::Difference(step.before, step.after));
  json.Add("before", step.before.Text());
  json.Add("after", step.after.Text());
  json.Add("recorded_ms", step.recorded_ms);
  json.Add("predicted_ms", step.predicted_ms);
  json.Add("predicted_low_ms", step.predicted_low_ms);
  json.Add("predicted_high_ms", step.predicted_high_ms);
  json.Add("kept", step.kept);
  if (!step.failed.empty()) {
    json.Add("outcome", "failed");
    json.Add("failed", step.failed);
    return json;
  }
  json.Add("measured_before_ms", measured.before_ms());
  json.Add("measured_ms", measured.after_ms());
  json.Add("measured_interval_ms", ToObject(measured.after_interval_ms()));
  json.Add("time_per_sample_ratio", measured.ratio());
  json.Add("time_per_sample_ratio_interval", ToObject(measured.interval()));
  json.Add("pairs", static_cast<int>(measured.after.size()));
  json.Add("outcome", OutcomeName(measured.outcome()));
  json.Add("error", step.error());
  json.Add("predicted_ratio", step.predicted_ratio);
  json.Add("ratio_error", step.ratio_error());
  return json;
}

JsonObject ToObject(const HabitCost& habit) {
  JsonObject json;
  json.Add("name", habit.name);
  json.Add("cost_ms", habit.cost_ms());
  json.Add("cost_interval_ms", ToObject(habit.interval_ms()));
  json.Add("beyond_noise", habit.Costs());
  json.Add("removed_at_step", habit.removed_at + 1);
  if (habit.at_end) {
    json.Add("end_cost_ms", habit.end_cost_ms());
    json.Add("beyond_noise_at_end", habit.CostsAtEnd());
  }
  return json;
}

JsonObject ToObject(const Swept& point) {
  JsonObject json;
  json.Add("flags", point.settings.Text());
  json.Add("samples_per_s", point.median());
  json.Add("runs", point.samples_per_s);
  return json;
}

template <typename List>
std::vector<JsonObject> ToObjects(const List& list) {
  std::vector<JsonObject> objects;
  for (const auto& entry : list) objects.push_back(ToObject(entry));
  return objects;
}

}  // namespace

double Result::samples_per_s() const {
  return against_best ? against_best->after_samples_per_s()
                      : whole.after_samples_per_s();
}

double Result::best_samples_per_s() const {
  if (sweep.empty()) return 0;
  return against_best ? against_best->before_samples_per_s() : samples_per_s();
}

std::string ToJson(const Result& result) {
  const Ascent& ascent = result.ascent;
  JsonObject json;
  json.Add("version", 1);
  json.Add("start", ascent.start.Text());
  json.Add("end", ascent.end.Text());
  json.Add("steps", ToObjects(ascent.steps));
  json.Add("healthy", ascent.healthy);
  std::vector<JsonObject> left;
  for (const Left& entry : ascent.left) {
    JsonObject object;
    object.Add("id", entry.id);
    object.Add("why", entry.why);
    left.push_back(object);
  }
  json.Add("left", left);
  json.Add("start_samples_per_s", result.whole.before_samples_per_s());
  json.Add("samples_per_s", result.samples_per_s());
  if (!result.sweep.empty()) {
    json.Add("sweep_best_samples_per_s", result.best_samples_per_s());
    json.Add("sweep_best", result.sweep[0].settings.Text());
    if (result.against_best) {
      const Interval range = result.against_best->interval();
      json.Add("of_sweep_best", 1 / result.against_best->ratio());
      json.Add("of_sweep_best_interval",
               ToObject(Interval{1 / range.high, 1 / range.low}));
    } else {
      json.Add("of_sweep_best", 1.0);
    }
    json.Add("sweep", ToObjects(result.sweep));
  }
  if (!result.habits.empty()) {
    json.Add("habits", ToObjects(result.habits));
    json.Add("complaints", Complaints(result.habits));
  }
  return json.Text() + "\n";
}

}  // namespace climb
