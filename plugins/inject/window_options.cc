#include "window_options.h"

#include <charconv>
#include <limits>
#include <optional>
#include <vector>

namespace stepscope {
namespace {

// A day. A longer window would not fit into memory, so it is probably a
// mistake.
constexpr int64_t kMaxMs = int64_t{24} * 3600 * 1000;

// An empty variable counts as one that is not set.
std::string_view Value(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? std::string_view() : value;
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

absl::Status Wrong(const char* name, std::string_view value,
                   std::string_view instead) {
  return absl::InvalidArgumentError(std::string(name) + " is \"" +
                                    std::string(value) + "\"; " +
                                    std::string(instead));
}

absl::Status ReadMs(const Environment& environment, const char* name,
                    int64_t least, int64_t& out) {
  const std::string_view value = Value(environment, name);
  if (value.empty()) return absl::OkStatus();
  const std::optional<int64_t> number = Number(value);
  if (!number.has_value() || *number < least || *number > kMaxMs) {
    return Wrong(name, value,
                 "use milliseconds from " + std::to_string(least) + " to " +
                     std::to_string(kMaxMs));
  }
  out = *number;
  return absl::OkStatus();
}

absl::Status ReadSchedule(const Environment& environment, Schedule& schedule) {
  constexpr char kName[] = "STEPSCOPE_SCHEDULE";
  const std::string_view value = Value(environment, kName);
  if (value.empty()) return absl::OkStatus();
  std::vector<int64_t> numbers;
  for (std::string_view rest = value;;) {
    const size_t comma = rest.find(',');
    const std::optional<int64_t> number = Number(rest.substr(0, comma));
    if (!number.has_value()) break;
    numbers.push_back(*number);
    if (comma == std::string_view::npos) {
      if (numbers.size() < 3 || numbers.size() > 4) break;
      schedule.wait = numbers[0];
      schedule.warmup = numbers[1];
      schedule.active = numbers[2];
      if (numbers.size() == 4) schedule.repeat = numbers[3];
      if (absl::Status s = CheckSchedule(schedule); !s.ok()) {
        return Wrong(kName, value,
                     std::string(s.message().data(), s.message().size()));
      }
      return absl::OkStatus();
    }
    rest.remove_prefix(comma + 1);
  }
  return Wrong(kName, value,
               "use wait,warmup,active or wait,warmup,active,repeat in steps, "
               "for example 3,3,3");
}

}  // namespace

absl::StatusOr<WindowOptions> WindowOptionsFrom(const Environment& environment,
                                                std::string_view program_name) {
  WindowOptions options;
  options.log_dir = Value(environment, "STEPSCOPE_LOG_DIR");
  if (options.log_dir.empty()) {
    return absl::NotFoundError(
        "STEPSCOPE_LOG_DIR is not set, so nothing is recorded; set it to the "
        "folder to write to");
  }
  options.name = Value(environment, "STEPSCOPE_NAME");
  if (options.name.empty()) options.name = program_name;
  options.step_range = Value(environment, "STEPSCOPE_STEP_RANGE");
  options.print_report = Value(environment, "STEPSCOPE_PRINT") != "0";
  if (absl::Status s = ReadSchedule(environment, options.schedule); !s.ok()) {
    return s;
  }
  if (absl::Status s =
          ReadMs(environment, "STEPSCOPE_START_MS", 0, options.start_ms);
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          ReadMs(environment, "STEPSCOPE_DURATION_MS", 1, options.duration_ms);
      !s.ok()) {
    return s;
  }
  return options;
}

}  // namespace stepscope
