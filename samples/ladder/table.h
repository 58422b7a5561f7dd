// The ladder as Markdown, and its place in a file between two marks.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "ascent.h"

namespace ladder {

struct Heading {
  std::string date;        // "2026-11-21"
  std::string command;     // that makes this table again
  std::string chart = {};  // file name of the picture; empty: none
};

// What the machine is, a table with a line for each rung, and the whole way up.
// REQUIRES: at least two rungs.
std::string ToMarkdown(const Ladder& ladder, const Heading& heading);

// `text` with what stands between "<!-- NAME begin ... -->" and
// "<!-- NAME end -->" replaced by `section`. Marks that are not there are added
// at the end, together. Errors: InvalidArgument, if one of them is there alone
// or they stand the wrong way round.
absl::StatusOr<std::string> ReplaceMarked(std::string_view text,
                                          std::string_view name,
                                          std::string_view section);

}  // namespace ladder
