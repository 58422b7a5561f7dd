// The settings of `stepscope what-if`: the keys that a report's `settings` have
// and the replay knows, from and to text.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/report.h>

#include <string>
#include <string_view>

namespace stepscope {

// Reads "workers=2". Errors: InvalidArgument, one line that lists the keys, or
// says what the value must be.
absl::StatusOr<Setting> ParseSetting(const std::string& word);

// "workers=2"
std::string ToText(const Setting& setting);
// The value as JSON.
std::string JsonValue(const Setting& setting);
// `text` as a JSON string. REQUIRES: valid UTF-8.
std::string JsonQuoted(std::string_view text);

// "workers, intra_op_threads, ..."
std::string SettingKeys();
// A line of usage text for each key.
std::string SettingsUsage();

}  // namespace stepscope
