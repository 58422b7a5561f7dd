#include "settings.h"

#include <charconv>
#include <iterator>
#include <sstream>
#include <utility>

namespace measure {
namespace {

bool IsFlag(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && word[2] != '=';
}

std::string Typed(const std::string& flag, const std::string& value) {
  return value.empty() ? flag : flag + " " + value;
}

}  // namespace

absl::StatusOr<Settings> Settings::Parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  return Of({std::istream_iterator<std::string>(words), {}});
}

absl::StatusOr<Settings> Settings::Of(const std::vector<std::string>& words) {
  Settings settings;
  std::string open;  // the flag that may still get a value
  for (const std::string& word : words) {
    if (!IsFlag(word)) {
      if (open.empty()) {
        return absl::InvalidArgumentError("'" + word +
                                          "' is neither a flag nor the value "
                                          "of one (flags begin with --)");
      }
      settings.Set(std::exchange(open, ""), word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    settings.Set(flag, equals == word.npos ? "" : word.substr(equals + 1));
    open = equals == word.npos ? flag : "";
  }
  return settings;
}

void Settings::Set(const std::string& flag, std::string value) {
  values_[flag] = std::move(value);
}

std::string Settings::Get(const std::string& flag, std::string absent) const {
  const auto at = values_.find(flag);
  return at == values_.end() ? std::move(absent) : at->second;
}

int Settings::Number(const std::string& flag, int absent) const {
  const std::string text = Get(flag);
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? number : absent;
}

Settings Settings::With(const Settings& over) const {
  Settings both = *this;
  for (const auto& [flag, value] : over.values_) both.Set(flag, value);
  return both;
}

std::vector<std::string> Settings::Arguments() const {
  std::vector<std::string> arguments;
  for (const auto& [flag, value] : values_) {
    arguments.push_back(value.empty() ? flag : flag + "=" + value);
  }
  return arguments;
}

std::string Settings::Text() const {
  std::string text;
  for (const auto& [flag, value] : values_) {
    text += (text.empty() ? "" : " ") + Typed(flag, value);
  }
  return text.empty() ? "(defaults)" : text;
}

std::string Difference(const Settings& a, const Settings& b) {
  std::string text;
  const auto add = [&](const std::string& part) {
    text += (text.empty() ? "" : ", ") + part;
  };
  for (const auto& [flag, value] : b.values()) {
    if (!a.Has(flag) || a.Get(flag) != value) add(Typed(flag, value));
  }
  for (const auto& [flag, value] : a.values()) {
    if (!b.Has(flag)) add("without " + flag);
  }
  return text;
}

}  // namespace measure
