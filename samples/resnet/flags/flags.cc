#include "flags/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace resnet {
namespace {

constexpr size_t kHelpColumn = 24;
constexpr size_t kWidth = 80;

// The whole text must be a number: "12x" is none.
template <typename Number>
bool Read(std::string_view text, Number* number) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// How many letters must be added, removed or changed to turn one word into the
// other (Levenshtein, 1966).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

absl::Status Unknown(std::span<const Flag> flags, std::string_view name) {
  const Flag* nearest = nullptr;
  size_t best = 0;
  for (const Flag& flag : flags) {
    if (!flag.set) continue;
    size_t distance = Distance(flag.name, name);
    // A beginning of a flag's name is more likely meant than a near spelling.
    if (name.size() > 3 && flag.name.starts_with(name)) distance = 0;
    if (nearest == nullptr || distance < best) {
      nearest = &flag;
      best = distance;
    }
  }
  std::string message = "unknown flag " + std::string(name);
  // Two letters may be wrong, or a third of a long name. Beyond that a
  // suggestion would be a guess.
  if (nearest != nullptr && best <= std::max<size_t>(2, name.size() / 3)) {
    message += "; did you mean " + nearest->name + "?";
  }
  return absl::InvalidArgumentError(message + " (--help lists all flags)");
}

}  // namespace

std::function<std::string(std::string_view)> SetTo(bool* target, bool value) {
  return [=](std::string_view) {
    *target = value;
    return std::string();
  };
}

std::function<std::string(std::string_view)> Bit(bool* target) {
  return [=](std::string_view text) -> std::string {
    if (text != "0" && text != "1") return "0 or 1";
    *target = text == "1";
    return "";
  };
}

std::function<std::string(std::string_view)> Text(std::string* target) {
  return [=](std::string_view text) -> std::string {
    if (text.empty()) return "a text";
    *target = std::string(text);
    return "";
  };
}

std::function<std::string(std::string_view)> AtLeast(int low, int* target) {
  return [=](std::string_view text) -> std::string {
    int number = 0;
    if (!Read(text, &number) || number < low) {
      return "a whole number of at least " + std::to_string(low);
    }
    *target = number;
    return "";
  };
}

std::function<std::string(std::string_view)> Positive(double* target) {
  return [=](std::string_view text) -> std::string {
    double number = 0;
    if (!Read(text, &number) || !std::isfinite(number) || number <= 0) {
      return "a number above 0";
    }
    *target = number;
    return "";
  };
}

absl::Status ParseFlags(std::span<const Flag> flags,
                        std::span<const char* const> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    std::string_view arg = args[i];
    // Only the first "=" separates; the value may contain others.
    size_t equals = arg.starts_with("--") ? arg.find('=') : arg.npos;
    std::string_view name = arg.substr(0, equals);
    auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) {
      return f.set && f.name == name;
    });
    if (flag == flags.end()) return Unknown(flags, name);
    std::string_view value;
    if (flag->value.empty()) {
      if (equals != arg.npos) {
        return absl::InvalidArgumentError(flag->name + " takes no value");
      }
    } else if (equals != arg.npos) {
      value = arg.substr(equals + 1);
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return absl::InvalidArgumentError(flag->name +
                                        " needs a value: " + flag->value);
    }
    std::string wanted = flag->set(value);
    if (!wanted.empty()) {
      return absl::InvalidArgumentError(flag->name + " must be " + wanted +
                                        ", not '" + std::string(value) + "'");
    }
  }
  return absl::OkStatus();
}

std::string DescribeFlags(std::span<const Flag> flags) {
  std::string out;
  for (const Flag& flag : flags) {
    if (!flag.set) {
      out += "\n" + flag.name + "\n";
      continue;
    }
    std::string line = "  " + flag.name;
    if (!flag.value.empty()) line += " " + flag.value;
    // Too long for its column: the help begins on the next line.
    if (line.size() >= kHelpColumn) {
      out += line + "\n";
      line.clear();
    }
    line.resize(kHelpColumn, ' ');
    std::string_view rest = flag.help;
    while (!rest.empty()) {
      size_t room = kWidth - kHelpColumn;
      // At the last blank that has room, or within a word that is too wide.
      size_t cut = rest.size() <= room ? rest.size() : rest.rfind(' ', room);
      if (cut == 0 || cut == std::string_view::npos) cut = room;
      out += line + std::string(rest.substr(0, cut)) + "\n";
      line.assign(kHelpColumn, ' ');
      rest.remove_prefix(cut);
      if (rest.starts_with(' ')) rest.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace resnet
