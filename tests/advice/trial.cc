#include "advice/trial.h"

#include <stepscope/analysis.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "support/program_simulator.h"
#include "support/simulator/program_text.h"

namespace stepscope {
namespace {

// Steps of the fixed program: enough for a mean that is nearly free of noise.
constexpr int kStepsOfTruth = 20;

}  // namespace

absl::StatusOr<Trial> Try(const AdviceCase& one, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::string, double> values;
  for (const auto& [name, range] : one.vary) {
    values[name] = std::uniform_real_distribution<double>(
        range.first, std::nextafter(range.second, 1e300))(random);
  }
  const absl::StatusOr<std::string> text =
      simulator::Substitute(one.program, values);
  if (!text.ok()) return text.status();

  Trial trial;
  trial.program = simulator::BeforeFix(*text);
  absl::StatusOr<ProgramRun> run = RunProgram(trial.program, {.seed = seed});
  if (!run.ok()) return run.status();
  trial.now_ms = run->mean_step_ms;
  trial.report = Analyze(run->ranks[0]);
  if (one.has_fix) {
    const absl::StatusOr<ProgramRun> fixed = RunProgram(
        simulator::AfterFix(*text), {.seed = seed + 1, .steps = kStepsOfTruth});
    if (!fixed.ok()) return fixed.status();
    trial.fixed_ms = fixed->mean_step_ms;
  }
  return trial;
}

const Finding* FindingOf(const Report& report, const std::string& id) {
  const auto it = std::ranges::find(report.findings, id, &Finding::id);
  return it == report.findings.end() ? nullptr : &*it;
}

bool Urges(const Report& report, const std::string& id) {
  return std::ranges::any_of(report.findings, [&](const Finding& finding) {
    return finding.id == id && finding.status != FindingStatus::kOk;
  });
}

std::vector<std::string> RulesIn(const Report& report) {
  std::vector<std::string> ids = report.clean;
  for (const CouldNotLook& blind : report.could_not_look) {
    ids.push_back(blind.id);
  }
  for (const Finding& finding : report.findings) ids.push_back(finding.id);
  for (const std::string& muted : report.muted) {
    ids.push_back(muted.substr(0, muted.find(' ')));
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::unique(ids);
  ids.erase(twice.begin(), twice.end());
  return ids;
}

}  // namespace stepscope
