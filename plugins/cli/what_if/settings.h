// The settings of `stepscope what-if`: the keys that a report's `settings` have
// and the replay knows, from and to text.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

#include "usage/command.h"

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
std::vector<std::string> SettingNames();
// A row of the usage text for each key: "workers=N".
std::vector<Term> SettingTerms();

}  // namespace stepscope
