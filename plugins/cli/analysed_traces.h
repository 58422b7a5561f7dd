// The traces that a user's paths stand for, read and analysed.
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

// Which traces to analyse, and of them which rank.
struct Selection {
  std::vector<std::string> paths;
  std::string run;     // empty: the newest
  int32_t cycle = -1;  // negative: the last
  int32_t rank = -1;   // negative: all
  ToldMachine machine;
};

// The options of a selection, besides --rank, whose meaning is the command's.
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
        "usable cores, for traces that do not say (those of "
        "torch.profiler)"};
inline constexpr Option kThreadsOption = {
    .name = "--threads",
    .value = "N",
    .help = "threads of an op on the CPU, for such traces"};

// The arguments, and the values of these options and of --rank. Errors:
// InvalidArgument for what is no number.
absl::StatusOr<Selection> SelectionOf(const CommandWords& given);

// ".../trace/rank3.json.gz" -> ".../advice/rank3.json", if it is there; else
// "".
std::string AdviceOf(const std::string& path);

// Those that could be read, and the ranks that are missing in a folder or among
// several paths. `drawn`, if not null, receives what a page shows of the
// selected rank.
AnalysedTraces AnalyseAll(const Selection& selection, const OnError& on_error,
                          DrawnRank* drawn = nullptr);

// Drops all ranks but `rank`; false (after an error) if it is missing.
bool ChooseRank(int32_t rank, AnalysedTraces& traces, const OnError& on_error);

}  // namespace stepscope
