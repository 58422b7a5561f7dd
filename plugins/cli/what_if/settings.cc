#include "what_if/settings.h"

#include <absl/status/status.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <system_error>
#include <vector>

#include "command_words.h"

namespace stepscope {
namespace {

enum class ValueKind { kWhole, kReal, kTrue, kFalse, kWord };

struct Key {
  std::string_view name;
  ValueKind kind;
  double least;           // for numbers
  std::string_view word;  // for kWord: the only known one
  std::string_view use;
};

// Keys have the same names as in the settings of a finding, so that advice can
// be tried without changes. A flag has only one value, because replay can
// remove a recorded cost, but cannot add one that was not recorded.
constexpr Key kKeys[] = {
    {"workers", ValueKind::kWhole, 0, "", "loader workers"},
    {"intra_op_threads", ValueKind::kWhole, 1, "",
     "threads of one operator on the CPU"},
    {"batch_size", ValueKind::kWhole, 1, "", "samples per step"},
    {"batch_factor", ValueKind::kReal, 0, "",
     "multiple of the recorded samples per step"},
    {"memory_format", ValueKind::kWord, 0, "channels_last",
     "channels-last weights and inputs"},
    {"optimizer_step", ValueKind::kWord, 0, "fused", "a fused optimizer"},
    {"set_to_none", ValueKind::kTrue, 0, "",
     "zero_grad() sets gradients to None"},
    {"validation_gradients", ValueKind::kFalse, 0, "",
     "validation records no gradients"},
    {"anomaly_mode", ValueKind::kFalse, 0, "", "anomaly detection off"},
};

std::string Values(const Key& key) {
  switch (key.kind) {
    case ValueKind::kWhole:
      return "a whole number of at least " +
             std::to_string(static_cast<int>(key.least));
    case ValueKind::kReal:
      return "a number above 0";
    case ValueKind::kTrue:
      return "true";
    case ValueKind::kFalse:
      return "false";
    case ValueKind::kWord:
      return std::string(key.word);
  }
  return "";
}

bool HasOneValue(const Key& key) {
  return key.kind != ValueKind::kWhole && key.kind != ValueKind::kReal;
}

template <typename Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  // Uses from_chars() because, unlike strtod(), it does not depend on the
  // locale.
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

bool ReadValue(const Key& key, const std::string& text, Setting* setting) {
  switch (key.kind) {
    case ValueKind::kWhole: {
      const auto number = NumberIn<int32_t>(text);
      if (!number || *number < key.least) return false;
      setting->value = int64_t{*number};
      return true;
    }
    case ValueKind::kReal: {
      const auto number = NumberIn<double>(text);
      // Reject "inf" and "nan", which from_chars() accepts as numbers.
      if (!number || !std::isfinite(*number) || *number <= key.least)
        return false;
      setting->value = *number;
      return true;
    }
    case ValueKind::kTrue:
    case ValueKind::kFalse:
      setting->value = key.kind == ValueKind::kTrue;
      return text == Values(key);
    case ValueKind::kWord:
      setting->value = text;
      return text == key.word;
  }
  return false;
}

std::string RealText(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

}  // namespace

absl::StatusOr<Setting> ParseSetting(const std::string& word) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, equals);
  const auto* key = std::ranges::find(kKeys, name, &Key::name);
  if (key == std::end(kKeys)) {
    std::vector<std::string_view> names;
    for (const Key& known : kKeys) names.push_back(known.name);
    const std::string_view nearest = Nearest(name, names);
    return absl::InvalidArgumentError(
        "unknown setting '" + name + "'" +
        (nearest.empty() ? "."
                         : "; did you mean '" + std::string(nearest) + "'?") +
        " The settings are: " + SettingKeys());
  }
  Setting setting = {.key = name, .value = false};
  const std::string text =
      equals < word.size() ? word.substr(equals + 1) : std::string();
  if (!ReadValue(*key, text, &setting)) {
    return absl::InvalidArgumentError(
        name + " must be " + Values(*key) + ", not '" + text + "'; write " +
        name + "=" + (HasOneValue(*key) ? Values(*key) : "VALUE"));
  }
  return setting;
}

std::string ToText(const Setting& setting) {
  // A word is written without the quotes that JSON needs.
  const auto* word = std::get_if<std::string>(&setting.value);
  return setting.key + "=" + (word != nullptr ? *word : JsonValue(setting));
}

std::string JsonValue(const Setting& setting) {
  if (const auto* flag = std::get_if<bool>(&setting.value))
    return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&setting.value))
    return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&setting.value))
    return RealText(*real);
  return JsonQuoted(std::get<std::string>(setting.value));
}

std::string JsonQuoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      quoted += escaped;
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string SettingKeys() {
  std::string keys;
  for (const Key& key : kKeys)
    keys += (keys.empty() ? "" : ", ") + std::string(key.name);
  return keys;
}

std::vector<Term> SettingTerms() {
  std::vector<Term> terms;
  for (const Key& key : kKeys) {
    const std::string value = key.kind == ValueKind::kWhole  ? "N"
                              : key.kind == ValueKind::kReal ? "X"
                                                             : Values(key);
    terms.push_back(
        {std::string(key.name) + "=" + value, std::string(key.use)});
  }
  return terms;
}

std::vector<std::string> SettingNames() {
  std::vector<std::string> names;
  for (const Key& key : kKeys) names.emplace_back(key.name);
  return names;
}

}  // namespace stepscope
