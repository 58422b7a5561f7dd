// Reads and analyses the traces that a user's paths stand for.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "analyze_output.h"
#include "command_words.h"
#include "digest.h"

namespace stepscope {

// Called with one line for each path that cannot be used, and why.
using OnError = std::function<void(const std::string&)>;

// Which traces to analyse, and which rank of them.
struct Selection {
  std::vector<std::string> paths;
  std::string run;     // empty: the newest
  int32_t cycle = -1;  // negative: the last
  int32_t rank = -1;   // negative: all
  ToldMachine machine;
  // Call on_error for damaged files, too. False where the report, which names
  // them, is on the same screen.
  bool names_damage = true;
};

// The options of a selection, except --rank, whose meaning depends on the
// command.
inline constexpr Option kRunOption = {
    .name = "--run",
    .value = "RUN",
    .help = "run of the log directory (default: the newest)"};
inline constexpr Option kCycleOption = {
    .name = "--cycle",
    .value = "N",
    .help = "recorded cycle (default: the last)"};
inline constexpr Option kCoresOption = {
    .name = "--cores",
    .value = "N",
    .help =
        "usable cores, for traces without this information "
        "(torch.profiler's)"};
inline constexpr Option kThreadsOption = {
    .name = "--threads",
    .value = "N",
    .help = "threads per op on the CPU, for traces without this information"};

// Reads a Selection from the arguments, these options and --rank. Errors:
// InvalidArgument for a value that is not a number.
absl::StatusOr<Selection> SelectionOf(const CommandWords& given);

// Returns ".../advice/rank3.json" for ".../trace/rank3.json.gz" if that file
// exists; else "".
std::string AdviceOf(const std::string& path);

// Returns the traces that could be read, and the ranks that are missing in a
// folder or among several paths. If `drawn` is not null, it receives the page's
// details of the selected rank.
AnalysedTraces AnalyseAll(const Selection& selection, const OnError& on_error,
                          DrawnRank* drawn = nullptr);

// Drops all ranks but `rank`. If `rank` is missing, calls on_error and returns
// false.
bool ChooseRank(int32_t rank, AnalysedTraces& traces, const OnError& on_error);

}  // namespace stepscope
