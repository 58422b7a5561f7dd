// Score: sums up many trials for each rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "advice/trial.h"

namespace stepscope {

// Limits for the difference between a predicted and the simulated gain. Each is
// a share of the simulated gain. Besides, jitter may hide a share of the step:
// two standard errors of the difference of two means over 20 steps that vary by
// 3 %. Shares of the step would be too lenient: for a gain of 7 %, predictions
// of 1 % and of 16 % would both be within 10 % of the resulting step.
inline constexpr double kSingleLimit = 0.15;
inline constexpr double kPlanLimit = 0.20;
inline constexpr double kJitter = 0.02;
// A bound of this many times the real gain is of no use.
inline constexpr double kLooseBound = 3;
// Limit for the difference between the measured and the simulated step, as a
// share.
inline constexpr double kMeasuredLimit = 0.03;

struct RuleScore {
  int planted = 0, found = 0;  // trials with the fault; those that urged it
  int elsewhere = 0;           // trials without the fault that urged the fix
  int others = 0;              // trials without the fault
  int notes_due = 0, notes = 0;
  // |predicted / simulated - 1| of the gain; in measured_, of the step.
  std::vector<double> errors;
  int bounds = 0, broken_bounds = 0, loose_bounds = 0, unsized = 0;
};

struct Failure {
  std::string case_name;
  uint64_t seed = 0;
  std::string what;
  bool pending = false;
};

class Score {
 public:
  void Add(const AdviceCase& one, uint64_t seed, const Trial& trial);
  void Add(const Score& other);
  // True if no case failed, apart from pending ones.
  bool perfect() const;
  const std::vector<Failure>& failures() const { return failures_; }
  // Returns the table: one line per rule, then the plan's line.
  std::string Table() const;

 private:
  void AddPlanted(const AdviceCase& one, uint64_t seed, const Trial& trial,
                  size_t index);
  void Compare(const AdviceCase& one, uint64_t seed, const Trial& trial,
               const Finding& finding, double fixed_ms);
  void CompareBound(const AdviceCase& one, uint64_t seed, const Trial& trial,
                    const Finding& finding, double gain_ms);
  void AddPlan(const AdviceCase& one, uint64_t seed, const Trial& trial);
  void Fail(const AdviceCase& one, uint64_t seed, std::string what);

  std::map<std::string, RuleScore> rules_;
  RuleScore plan_, measured_;
  std::vector<Failure> failures_;
};

}  // namespace stepscope
