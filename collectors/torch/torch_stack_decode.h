// StackMatcher: gives the operators of the recorded steps the stacks and
// modules that were taken in the sample step.
//
// A training loop runs the same operators in every step, so stacks are taken in
// one step only, for each top-level operator. A stack belongs to the operator's
// chain (the names of the autograd nodes around it, its own name, and whether
// gradients are on) and its ordinal among the operators of that chain, on its
// thread, in that step. The operator with the same chain and ordinal in another
// step gets the same stack, if that step runs the chain equally often. Some
// stacks are also taken in other steps, to check that they match.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace stepscope {

// Python frames and modules that the hooks took, indexed by sample number.
struct PythonSamples {
  struct Module {
    std::string path;
    std::string class_name;
  };
  std::vector<std::string> frames;               // "file(line): function"
  std::vector<std::vector<uint32_t>> stacks;     // of frames, innermost first
  std::vector<std::vector<uint64_t>> calls;      // of modules, outermost first
  std::unordered_map<uint64_t, Module> modules;  // by call
  int64_t unnamed = 0;  // samples that no thread could name
};

// The steps that the hooks saw, in nanoseconds since the epoch.
struct StackSteps {
  int64_t sample_begin_ns = 0;        // 0: there was no sample step
  int64_t sample_end_ns = 0;          // 0: it did not end
  std::vector<int64_t> ends_ns = {};  // of the steps after it, ascending
};

// What was taken at one operator.
struct StackSample {
  bool taken = false;
  RowId stack = kNone;      // kNone: no frames, or not asked for
  uint32_t python = kNone;  // in PythonSamples
};

struct StackCounts {
  int64_t matched = 0;    // operators with a stack of the sample step
  int64_t unmatched = 0;  // operators without one, on sampled threads
  int64_t checked = 0;    // operators whose stack was taken twice
  // Of these, in steps that run the chain as often as the sample step: another
  // stack than expected.
  int64_t differs = 0;
};

class StackMatcher {
 public:
  StackMatcher(const StackSteps& steps, const PythonSamples& python,
               TraceBuilder& builder)
      : steps_(steps), python_(python), builder_(builder) {}

  // Sets the stacks of one thread's ops, which are in pre-order and nest, and
  // adds the ranges of the modules around them. `samples` has one entry per op.
  void Match(std::span<Op> ops, std::span<const StackSample> samples);

  const StackCounts& counts() const { return counts_; }

 private:
  // For each chain, its operators in one step, in order.
  using Chains = std::unordered_map<uint64_t, std::vector<size_t>>;

  size_t StepOf(int64_t begin_ns) const;
  void MatchStep(const Chains& chains, std::span<Op> ops,
                 std::span<const StackSample> samples);
  void MatchChain(std::span<const size_t> calls,
                  std::span<const StackSample> known, std::span<Op> ops,
                  std::span<const StackSample> samples);
  void AddModules(std::span<const Op> ops, std::span<const size_t> steps);

  const StackSteps& steps_;
  const PythonSamples& python_;
  TraceBuilder& builder_;
  StackCounts counts_;
  std::unordered_map<uint64_t, std::vector<StackSample>> known_;  // by chain
  std::vector<uint32_t> python_of_;  // by op: the sample with its modules
};

}  // namespace stepscope
