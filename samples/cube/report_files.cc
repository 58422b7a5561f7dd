#include <cstdio>
#include <optional>

#include "measure/json_text.h"
#include "report.h"

namespace cube {
namespace {

using measure::JsonObject;

void AddRatio(const char* key, const Ratio& ratio, JsonObject& json) {
  JsonObject object;
  object.Add("ratio", ratio.value);
  object.Add("low", ratio.interval.low);
  object.Add("high", ratio.interval.high);
  json.Add(key, object);
}

void AddReplay(const std::optional<Ratio>& expected, JsonObject& json) {
  if (!expected) return;
  json.Add("replay_ratio", expected->value);
  json.Add("replay_low", expected->interval.low);
  json.Add("replay_high", expected->interval.high);
}

JsonObject PointObject(const Measured& measured, size_t p) {
  const Cube& cube = measured.cube;
  JsonObject json;
  json.Add("flags", cube.points[p].settings.Text());
  json.Add("samples_per_s", cube.MedianRate(p));
  json.Add("spread", cube.Spread(p));
  json.Add("runs", cube.rates[p]);
  AddReplay(measured.expected.points[p], json);
  return json;
}

JsonObject EffectObject(const Measured& measured, const Effect& effect) {
  const measure::Factor& factor = measured.cube.factors[effect.factor];
  JsonObject json;
  json.Add("change", LevelText(factor, effect.level));
  if (effect.at_baseline_known) {
    AddRatio("at_baseline", effect.at_baseline, json);
  }
  AddRatio("on_average", effect.on_average, json);
  AddReplay(measured.ExpectedAlone(effect), json);
  return json;
}

// `expected`: the same pair as replay has it; nullptr if it does not.
JsonObject PairObject(const Cube& cube, const Pair& pair,
                      const Pair* expected) {
  JsonObject json;
  json.Add("first",
           LevelText(cube.factors[pair.first.factor], pair.first.level));
  json.Add("second",
           LevelText(cube.factors[pair.second.factor], pair.second.level));
  json.Add("verdict", TogetherText(pair.together));
  json.Add("beyond_noise", pair.together != Together::kAsExpected);
  AddRatio("first_alone", pair.first.on_average, json);
  AddRatio("second_alone", pair.second.on_average, json);
  AddRatio("both", pair.both, json);
  AddRatio("both_over_product", pair.beyond_product, json);
  if (expected == nullptr) return json;
  JsonObject replay;
  replay.Add("first_alone", expected->first.on_average.value);
  replay.Add("second_alone", expected->second.on_average.value);
  replay.Add("both", expected->both.value);
  replay.Add("both_over_product", expected->beyond_product.value);
  json.Add("replay", replay);
  return json;
}

}  // namespace

std::string ToCsv(const Measured& measured) {
  const Cube& cube = measured.cube;
  std::string text = "round";
  for (const measure::Factor& factor : cube.factors) text += "," + factor.flag;
  text += ",samples_per_s\n";
  for (size_t round = 0; round < cube.rates[0].size(); ++round) {
    for (size_t p = 0; p < cube.points.size(); ++p) {
      text += std::to_string(round + 1);
      for (size_t f = 0; f < cube.factors.size(); ++f) {
        text += "," + cube.factors[f].levels[cube.points[p].levels[f]];
      }
      char rate[32];
      std::snprintf(rate, sizeof(rate), ",%.3f\n", cube.rates[p][round]);
      text += rate;
    }
  }
  return text;
}

std::string ToJson(const Measured& measured) {
  const Cube& cube = measured.cube;
  std::vector<JsonObject> points, effects, pairs, left_out;
  for (size_t p = 0; p < cube.points.size(); ++p) {
    points.push_back(PointObject(measured, p));
  }
  for (const Effect& effect : Effects(cube)) {
    effects.push_back(EffectObject(measured, effect));
  }
  const std::vector<Pair> expected = Pairs(AsCube(measured.expected, cube));
  for (const Pair& pair : Pairs(cube)) {
    pairs.push_back(PairObject(cube, pair, SamePair(expected, pair)));
  }
  for (const LeftOut& entry : measured.left_out) {
    JsonObject object;
    object.Add("flags", entry.settings.Text());
    object.Add("why", entry.why);
    left_out.push_back(object);
  }
  JsonObject json;
  json.Add("version", 1);
  json.Add("baseline", cube.points[0].settings.Text());
  json.Add("points", points);
  json.Add("effects", effects);
  json.Add("pairs", pairs);
  json.Add("left_out", left_out);
  json.Add("replay_unknown", measured.expected.unknown);
  json.Add("replay_why_not", measured.expected.why_not);
  return json.Text() + "\n";
}

}  // namespace cube
