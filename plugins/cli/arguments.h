// Arguments: the command line of `stepscope`, checked.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

enum class Command : uint8_t {
  kHelp,
  kVersion,
  kAnalyze,
  kAnalyzeHelp,
  kDoctor,
  kDoctorHelp
};
enum class ReportFormat : uint8_t { kText, kJson, kMarkdown };

struct Arguments {
  Command command = Command::kHelp;
  std::vector<std::string> paths;
  ReportFormat format = ReportFormat::kText;
  std::string output;  // empty: standard output
  std::string run;     // empty: the newest
  int32_t cycle = -1;  // negative: the last
  int32_t rank = -1;   // only this one; negative: all
  bool verbose = false;
  // Of doctor.
  std::string python;   // whose torch is meant; empty: the shell's
  std::string viewers;  // whose TensorBoard is meant; empty: the same
};

// Errors: InvalidArgument, whose message is one line for the user, with the
// nearest known word where one was misspelled.
absl::StatusOr<Arguments> ParseArguments(std::span<const std::string> words);

// The candidate that takes the fewest edits to become `word`; empty if even
// that one is too far away to be meant.
std::string_view Nearest(std::string_view word,
                         std::span<const std::string_view> candidates);

}  // namespace stepscope
