#include "options.h"

#include <utility>

namespace cube {
namespace {

using measure::Factor;
using measure::Settings;

constexpr size_t kMostPoints = 2000;

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t comma = list.find(',', begin);
    parts.push_back(list.substr(begin, comma - begin));
    if (comma == list.npos) return parts;
    begin = comma + 1;
  }
}

// Takes `flag` out of `settings`. Errors: InvalidArgument, if it is there and
// is no whole number of at least `low`.
absl::Status TakeNumber(const std::string& flag, int low, Settings& settings,
                        int* number) {
  if (!settings.Has(flag)) return absl::OkStatus();
  *number = settings.Number(flag, low - 1);
  settings.Drop(flag);
  if (*number >= low) return absl::OkStatus();
  return absl::InvalidArgumentError(
      flag + " must be a whole number of at least " + std::to_string(low));
}

void TakeText(const std::string& flag, Settings& settings, std::string* text) {
  *text = settings.Get(flag, *text);
  settings.Drop(flag);
}

absl::Status CheckFactors(const std::vector<Factor>& factors) {
  if (factors.empty()) {
    return absl::InvalidArgumentError(
        "--sweep needs a flag with several values: --workers 0,1 "
        "--channels-last off,on");
  }
  size_t points = 1;
  for (const Factor& factor : factors) {
    points *= factor.levels.size();
    for (const std::string& level : factor.levels) {
      if (!level.empty()) continue;
      return absl::InvalidArgumentError(factor.flag +
                                        " has an empty value between commas");
    }
    if (points > kMostPoints) {
      return absl::InvalidArgumentError("these are more than " +
                                        std::to_string(kMostPoints) +
                                        " combinations: leave some values out");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words) {
  absl::StatusOr<Settings> given = Settings::Of(words);
  if (!given.ok()) return given.status();
  Options options;
  TakeText("--sweep-work", *given, &options.folder);
  TakeText("--sweep-csv", *given, &options.csv);
  TakeText("--sweep-json", *given, &options.json);
  for (absl::Status s :
       {TakeNumber("--sweep-rounds", 2, *given, &options.rounds),
        TakeNumber("--sweep-steps", 4, *given, &options.steps),
        TakeNumber("--sweep-limit", 1, *given, &options.limit_s)}) {
    if (!s.ok()) return s;
  }
  for (const auto& [flag, value] : given->values()) {
    std::vector<std::string> levels = Split(value);
    if (flag.starts_with("--sweep")) {
      return absl::InvalidArgumentError("unknown flag " + flag);
    }
    if (levels.size() > 1) {
      options.factors.push_back({flag, std::move(levels)});
    } else {
      options.base.Set(flag, value);
    }
  }
  if (absl::Status s = CheckFactors(options.factors); !s.ok()) return s;
  return options;
}

}  // namespace cube
