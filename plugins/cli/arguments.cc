#include "arguments.h"

#include <absl/status/status.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

namespace stepscope {
namespace {

constexpr std::string_view kCommands[] = {
    "analyze", "compare", "convert", "doctor", "explain",
    "help",    "info",    "rules",   "top",    "version"};
constexpr std::string_view kOptions[] = {"--format", "--output", "--verbose",
                                         "--run",    "--cycle",  "--rank",
                                         "--help",   "--version"};
constexpr std::string_view kDoctorOptions[] = {"--python", "--viewers",
                                               "--help"};
constexpr std::string_view kFormats[] = {"text", "json", "markdown"};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string Quoted(std::string_view word) {
  return "'" + std::string(word) + "'";
}

std::string DidYouMean(std::string_view nearest) {
  return nearest.empty() ? "; see stepscope --help"
                         : "; did you mean " + Quoted(nearest) + "?";
}

absl::Status Usage(const std::string& message) {
  return absl::InvalidArgumentError(message);
}

absl::Status UnknownCommand(const std::string& word) {
  std::error_code error;
  if (std::filesystem::exists(word, error)) {
    return Usage(Quoted(word) + " is no command; to analyze that file or " +
                 "directory: stepscope analyze " + word);
  }
  return Usage("unknown command " + Quoted(word) +
               DidYouMean(Nearest(word, kCommands)));
}

class AnalyzeParser {
 public:
  AnalyzeParser(std::span<const std::string> words, Arguments* arguments)
      : words_(words), arguments_(*arguments) {}

  absl::Status Parse() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (only_paths_ || word == "-" || !word.starts_with("-")) {
        arguments_.paths.push_back(word);
      } else if (word == "--") {
        only_paths_ = true;
      } else if (absl::Status status = Option(word); !status.ok()) {
        return status;
      }
    }
    if (arguments_.command == Command::kAnalyze && arguments_.paths.empty()) {
      return Usage(
          "analyze needs a trace file or a log directory: stepscope analyze "
          "PATH...");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    has_value_ = equals != std::string::npos;
    value_ = has_value_ ? word.substr(equals + 1) : "";
    if (name == "--help" || name == "-h") {
      arguments_.command = Command::kAnalyzeHelp;
    } else if (name == "--verbose" || name == "-v") {
      if (has_value_) return Usage(name + " takes no value");
      arguments_.verbose = true;
    } else if (name == "--output" || name == "-o") {
      return Value(name, &arguments_.output);
    } else if (name == "--run") {
      return Value(name, &arguments_.run);
    } else if (name == "--format") {
      return Format(name);
    } else if (name == "--cycle") {
      return Number(name, &arguments_.cycle);
    } else if (name == "--rank") {
      return Number(name, &arguments_.rank);
    } else {
      return Usage("unknown option " + Quoted(name) +
                   DidYouMean(Nearest(name, kOptions)));
    }
    return absl::OkStatus();
  }

  // The text behind "=", or the next word.
  absl::Status Value(const std::string& name, std::string* value) {
    if (!has_value_) {
      if (at_ == words_.size()) return Usage(name + " needs a value");
      value_ = words_[at_++];
    }
    if (value_.empty()) return Usage(name + " needs a value");
    *value = value_;
    return absl::OkStatus();
  }

  absl::Status Format(const std::string& name) {
    std::string value;
    if (absl::Status status = Value(name, &value); !status.ok()) return status;
    for (size_t i = 0; i < std::size(kFormats); ++i) {
      if (value != kFormats[i]) continue;
      arguments_.format = static_cast<ReportFormat>(i);
      return absl::OkStatus();
    }
    return Usage("--format is text, json or markdown, not " + Quoted(value));
  }

  absl::Status Number(const std::string& name, int32_t* number) {
    std::string value;
    if (absl::Status status = Value(name, &value); !status.ok()) return status;
    const char* end = value.data() + value.size();
    const auto result = std::from_chars(value.data(), end, *number);
    if (result.ec == std::errc() && result.ptr == end && *number >= 0)
      return absl::OkStatus();
    return Usage(name + " is a number from 0 on, not " + Quoted(value));
  }

  std::span<const std::string> words_;
  Arguments& arguments_;
  size_t at_ = 0;
  bool only_paths_ = false;
  bool has_value_ = false;
  std::string value_;
};

// --python and --viewers, each as "--python PATH" or "--python=PATH".
absl::Status ParseDoctor(std::span<const std::string> words,
                         Arguments* arguments) {
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "--help" || word == "-h") {
      arguments->command = Command::kDoctorHelp;
      continue;
    }
    if (!word.starts_with("-"))
      return Usage("doctor takes no path, only --python and --viewers PATH");
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::string* value = name == "--python"    ? &arguments->python
                         : name == "--viewers" ? &arguments->viewers
                                               : nullptr;
    if (value == nullptr) {
      return Usage("unknown option " + Quoted(name) +
                   DidYouMean(Nearest(name, kDoctorOptions)));
    }
    if (equals != std::string::npos) {
      *value = word.substr(equals + 1);
    } else {
      *value = at + 1 < words.size() ? words[++at] : "";
    }
    if (value->empty()) return Usage(name + " needs a value");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Nearest(std::string_view word,
                         std::span<const std::string_view> candidates) {
  std::string_view nearest;
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  for (std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

absl::StatusOr<Arguments> ParseArguments(std::span<const std::string> words) {
  Arguments arguments;
  if (words.empty())
    return Usage("no command; the usual one is: stepscope analyze PATH...");
  const std::string& first = words[0];
  if (first == "--help" || first == "-h" || first == "help") return arguments;
  if (first == "--version" || first == "version") {
    arguments.command = Command::kVersion;
    return arguments;
  }
  if (first == "analyze") {
    arguments.command = Command::kAnalyze;
    absl::Status status = AnalyzeParser(words.subspan(1), &arguments).Parse();
    if (!status.ok()) return status;
    return arguments;
  }
  if (first == "doctor") {
    arguments.command = Command::kDoctor;
    absl::Status status = ParseDoctor(words.subspan(1), &arguments);
    if (!status.ok()) return status;
    return arguments;
  }
  if (first.starts_with("-")) {
    if (std::find(std::begin(kOptions), std::end(kOptions), first) !=
        std::end(kOptions)) {
      return Usage(Quoted(first) + " comes behind the command: stepscope " +
                   "analyze " + first + " PATH...");
    }
    return Usage("unknown option " + Quoted(first) +
                 DidYouMean(Nearest(first, kOptions)));
  }
  return UnknownCommand(first);
}

}  // namespace stepscope
