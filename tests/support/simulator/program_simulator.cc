#include "support/program_simulator.h"

#include <absl/status/status.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "support/simulator/program_code.h"
#include "support/simulator/program_host.h"
#include "support/simulator/program_recording.h"
#include "support/simulator/program_text.h"

namespace stepscope {
namespace simulator {
namespace {

// Connects the tasks of all ranks that take part in a collective. A collective
// waits for its whole group, or a message for both ends, even if one never
// arrives.
std::vector<Meeting> MeetingsOf(const Machine& machine,
                                std::vector<RankCode>& codes) {
  std::map<std::array<int, 4>, int> known;
  std::vector<Meeting> meetings;
  for (RankCode& code : codes) {
    for (DeviceTask& task : code.tasks) {
      if (task.is != WorkIs::kCollective) continue;
      const auto [entry, is_new] =
          known.emplace(task.meets_as, static_cast<int>(meetings.size()));
      task.meeting = entry->second;
      if (!is_new) continue;
      const auto [group, ordinal, from, to] = task.meets_as;
      meetings.emplace_back().ranks =
          from >= 0 ? 2 : static_cast<int>(machine.groups[group].ranks.size());
    }
  }
  return meetings;
}

// Runs all ranks together until they end.
absl::Status RunToTheEnd(std::vector<std::unique_ptr<Rank>>& ranks,
                         std::vector<Meeting>& meetings) {
  double now = 1e9;
  size_t first_open = 0;  // all collectives before it are done
  const auto all_done = [&] {
    return std::ranges::all_of(ranks, [](auto& r) { return r->finished(); });
  };
  while (true) {
    for (auto& rank : ranks) rank->Settle(now);
    if (all_done()) return absl::OkStatus();
    double next = 1e299;
    for (auto& rank : ranks) next = std::min(next, rank->Next(now));
    if (next >= 1e299) {
      return absl::InvalidArgumentError(
          "the program cannot go on: a thread waits for what never comes");
    }
    const double dt = std::max(next - now, 0.0);
    while (first_open < meetings.size() && meetings[first_open].done) {
      ++first_open;
    }
    for (size_t i = first_open; i < meetings.size(); ++i) {
      Meeting& meeting = meetings[i];
      if (meeting.done || meeting.arrived < meeting.ranks) continue;
      meeting.left -= dt;
      meeting.done = meeting.left <= 1e-3;
    }
    for (auto& rank : ranks) rank->Advance(now, dt);
    now = next;
  }
}

}  // namespace
}  // namespace simulator

absl::StatusOr<ProgramRun> RunProgram(std::string_view text,
                                      const SimulatorOptions& options) {
  using namespace simulator;
  absl::StatusOr<std::vector<Statement>> program = ParseProgram(text);
  if (!program.ok()) return program.status();
  absl::StatusOr<Machine> machine = MachineOf(*program);
  if (!machine.ok()) return machine.status();
  if (options.steps > 0) machine->steps = options.steps;

  std::vector<RankCode> codes;
  std::vector<std::unique_ptr<Jitter>> jitters;
  for (int r = 0; r < machine->ranks; ++r) {
    jitters.push_back(std::make_unique<Jitter>(options.seed * 1'000'003 + r));
    absl::StatusOr<RankCode> code = CodeOf(*program, *machine, r, *jitters[r]);
    if (!code.ok()) return code.status();
    codes.push_back(*std::move(code));
  }
  std::vector<Meeting> meetings = MeetingsOf(*machine, codes);
  std::vector<std::unique_ptr<Rank>> ranks;
  ranks.reserve(codes.size());
  for (int r = 0; r < machine->ranks; ++r) {
    ranks.push_back(
        std::make_unique<Rank>(*machine, codes[r], meetings, *jitters[r]));
  }
  const absl::Status ran = RunToTheEnd(ranks, meetings);
  if (!ran.ok()) return ran;

  ProgramRun run;
  run.mean_step_ms = TrueStepNs(*machine, codes[0]) * 1e-6;
  for (int r = 0; r < machine->ranks && options.record; ++r) {
    run.ranks.push_back(
        RecordingOf(*machine, codes[r], r, ranks[r]->usage(), *jitters[r]));
  }
  return run;
}

ProgramRun MustRunProgram(std::string_view text,
                          const SimulatorOptions& options) {
  absl::StatusOr<ProgramRun> run = RunProgram(text, options);
  EXPECT_TRUE(run.ok()) << run.status();
  if (run.ok()) return *std::move(run);
  ProgramRun empty;
  empty.ranks.emplace_back();
  return empty;
}

}  // namespace stepscope
