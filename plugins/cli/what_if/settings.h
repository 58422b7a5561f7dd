// The settings of `stepscope what-if`: the keys of a report's `settings` that
// the replay knows, and their conversion from and to text.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

#include "usage/command.h"

namespace stepscope {

// Reads "workers=2". Errors: InvalidArgument, with one line that lists the
// keys, or says what the value must be.
absl::StatusOr<Setting> ParseSetting(const std::string& word);

// Returns "workers=2".
std::string ToText(const Setting& setting);
// Returns the value as JSON.
std::string JsonValue(const Setting& setting);
// Returns `text` as a JSON string. REQUIRES: valid UTF-8.
std::string JsonQuoted(std::string_view text);

// Returns "workers, intra_op_threads, ...".
std::string SettingKeys();
std::vector<std::string> SettingNames();
// Returns a row of the usage text for each key: "workers=N".
std::vector<Term> SettingTerms();

}  // namespace stepscope
