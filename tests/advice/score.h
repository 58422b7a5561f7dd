// Score: what many trials say about each rule.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "advice/trial.h"

namespace stepscope {

// How far a predicted gain may be from the simulated one: a share of that gain,
// and beside it the share of the step that jitter hides (two standard errors of
// the difference of two means of 20 steps that vary by 3 %). A step hides
// errors: a gain of 7 % promised as 1 or as 16 % leaves it within 10 %.
inline constexpr double kSingleLimit = 0.15;
inline constexpr double kPlanLimit = 0.20;
inline constexpr double kJitter = 0.02;
// A bound that is this many times what the fix brings tells a user nothing.
inline constexpr double kLooseBound = 3;
// How far the step as it is may be from the simulated one.
inline constexpr double kMeasuredLimit = 0.03;

struct RuleScore {
  int planted = 0, found = 0;  // trials with the fault; of these, urged
  int elsewhere = 0;           // trials without it in which it was urged
  int others = 0;              // trials without it
  int notes_due = 0, notes = 0;
  // |predicted / simulated - 1| of the gain; of measured_, of the step.
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
  // Whether there is no failure, in cases that are not pending.
  bool perfect() const;
  const std::vector<Failure>& failures() const { return failures_; }
  // The table, one line a rule, the plan's line last.
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
