#include "advice/trial.h"

#include <stepscope/analysis.h>
#include <stepscope/ranks.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "support/program_simulator.h"
#include "support/simulator/program_text.h"

namespace stepscope {
namespace {

// Steps simulated for the fixed program: enough to make the mean nearly exact.
constexpr int kStepsOfTruth = 20;
// Workers deliver bursts of as many batches as there are workers, so that more
// steps are needed.
constexpr int kStepsWithWorkers = 60;
// Used if the advice names no number.
constexpr double kWorkers = 8, kThreads = 8;

int StepsOfTruth(const AdviceCase& one) {
  return one.program.find("workers=$(workers)") == std::string::npos
             ? kStepsOfTruth
             : kStepsWithWorkers;
}

using Values = std::map<std::string, double>;

// Returns the number right before or after `mark` in `text`; 0 if there is
// none.
double NumberAfter(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  return at == std::string::npos ? 0
                                 : std::atof(text.c_str() + at + mark.size());
}

// Returns `values` with the numbers of workers and threads that the advice
// recommends.
Values WithAdvice(Values values, double workers, double threads) {
  values["workers"] = workers > 0 ? workers : kWorkers;
  values["threads"] = threads > 0 ? threads : kThreads;
  return values;
}
Values AsFindingSays(const Values& values, const Finding* finding) {
  if (finding == nullptr) return WithAdvice(values, 0, 0);
  return WithAdvice(values, NumberAfter(finding->fix_cpp, ".workers("),
                    NumberAfter(finding->fix_cpp, "set_num_threads("));
}
Values AsPlanSays(const Values& values, const Plan& plan) {
  double workers = 0, threads = 0;
  for (const std::string& change : plan.changes) {
    if (change.find("loader worker") != std::string::npos) {
      workers = std::atof(change.c_str());
    }
    if (change.find("intra-op thread") != std::string::npos) {
      threads = std::atof(change.c_str());
    }
  }
  return WithAdvice(values, workers, threads);
}

absl::StatusOr<ProgramRun> RunWith(const AdviceCase& one, const Values& values,
                                   const std::vector<bool>& fixed,
                                   const SimulatorOptions& options,
                                   std::string* program = nullptr) {
  const absl::StatusOr<std::string> text =
      simulator::Substitute(simulator::WithFixes(one.program, fixed), values);
  if (!text.ok()) return text.status();
  if (program != nullptr) *program = *text;
  return RunProgram(*text, options);
}

Report ReportOn(const std::vector<Trace>& ranks) {
  if (ranks.size() == 1) return Analyze(ranks[0]);
  std::vector<RankDigest> digests;
  for (const Trace& trace : ranks) digests.push_back(DigestRank(trace));
  return AnalyzeRanks(digests);
}

// Simulates the program with the plan's changes, if the plan names only planted
// faults.
absl::Status FollowPlan(const AdviceCase& one, const Values& values,
                        uint64_t seed, Trial& trial) {
  const Plan& plan = trial.report.plan;
  std::vector<bool> fixed(one.plant.size());
  for (const std::string& id : plan.ids) {
    const auto planted = std::ranges::find(one.plant, id);
    if (planted == one.plant.end()) return absl::OkStatus();
    fixed[static_cast<size_t>(planted - one.plant.begin())] = true;
  }
  if (plan.ids.empty()) return absl::OkStatus();
  const absl::StatusOr<ProgramRun> run =
      RunWith(one, AsPlanSays(values, plan), fixed,
              {.seed = seed, .steps = StepsOfTruth(one), .record = false});
  if (!run.ok()) return run.status();
  trial.planned_ms = run->mean_step_ms;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Trial> Try(const AdviceCase& one, uint64_t seed) {
  std::mt19937_64 random(seed);
  Values values;
  for (const auto& [name, range] : one.vary) {
    values[name] = std::uniform_real_distribution<double>(
        range.first, std::nextafter(range.second, 1e300))(random);
  }
  Trial trial;
  absl::StatusOr<ProgramRun> run =
      RunWith(one, values, {}, {.seed = seed}, &trial.program);
  if (!run.ok()) return run.status();
  trial.now_ms = run->mean_step_ms;
  trial.report = ReportOn(run->ranks);
  if (one.has_fix) {
    const absl::StatusOr<ProgramRun> unfixed = RunWith(
        one, WithAdvice(values, 0, 0), {},
        {.seed = seed + 1, .steps = StepsOfTruth(one), .record = false});
    if (!unfixed.ok()) return unfixed.status();
    trial.unfixed_ms = unfixed->mean_step_ms;
  }
  for (size_t i = 0; i < one.plant.size() && one.has_fix; ++i) {
    std::vector<bool> fixed(one.plant.size());
    fixed[i] = true;
    const absl::StatusOr<ProgramRun> better = RunWith(
        one, AsFindingSays(values, FindingOf(trial.report, one.plant[i])),
        fixed,
        {.seed = seed + 1 + i, .steps = StepsOfTruth(one), .record = false});
    if (!better.ok()) return better.status();
    trial.fixed_ms.push_back(better->mean_step_ms);
  }
  if (one.plant.size() > 1 && one.has_fix) {
    if (absl::Status s = FollowPlan(one, values, seed + 77, trial); !s.ok()) {
      return s;
    }
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
  for (const CauseAnswer& answer : report.coverage) {
    ids.insert(ids.end(), answer.looked.begin(), answer.looked.end());
  }
  for (const SkippedRule& blind : report.skipped) {
    ids.push_back(blind.id);
  }
  for (const Finding& finding : report.findings) ids.push_back(finding.id);
  for (const std::string& superseded : report.superseded) {
    ids.push_back(superseded.substr(0, superseded.find(' ')));
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::unique(ids);
  ids.erase(twice.begin(), twice.end());
  return ids;
}

}  // namespace stepscope
