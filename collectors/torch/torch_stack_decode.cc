#include "torch_stack_decode.h"

#include <algorithm>
#include <utility>

namespace stepscope {
namespace {

constexpr size_t kNoStep = ~size_t{0};

// Returns the chain of each op; 0 for an autograd node or an op inside another
// operator. A chain is a hash of the names on the way to the op, and of whether
// the op has a sequence number, which it has not under no_grad(): the passes of
// training and of a validation in the same step are told apart. Its lowest bit
// is set, so that it is never 0.
std::vector<uint64_t> ChainsOf(std::span<const Op> ops) {
  struct Open {
    int64_t end_ns;
    uint64_t chain;
    bool in_operator;
  };
  std::vector<uint64_t> chains;
  chains.reserve(ops.size());
  std::vector<Open> open;
  for (const Op& op : ops) {
    while (!open.empty() && open.back().end_ns <= op.begin_ns) open.pop_back();
    const bool is_inside = !open.empty() && open.back().in_operator;
    const bool is_operator = op.kind == OpKind::kOperator;
    const uint64_t outer = open.empty() ? 0 : open.back().chain;
    const uint64_t name = uint64_t{op.name} << 1 | (op.sequence >= 0 ? 1 : 0);
    const uint64_t chain =
        (outer * 0x9e3779b97f4a7c15u ^ name) * 0xff51afd7ed558ccdu | 1;
    chains.push_back(is_operator && !is_inside ? chain : 0);
    open.push_back({op.end_ns, chain, is_inside || is_operator});
  }
  return chains;
}

// True if all calls of a chain have the same stack and the same modules around
// them, so that they need not be told apart.
bool AreAlike(std::span<const StackSample> samples,
              const std::vector<std::vector<uint64_t>>& calls) {
  const auto of = [&](const StackSample& sample) {
    return sample.python < calls.size() ? calls[sample.python]
                                        : std::vector<uint64_t>();
  };
  return std::ranges::all_of(samples, [&](const StackSample& sample) {
    return sample.taken && sample.stack == samples[0].stack &&
           of(sample) == of(samples[0]);
  });
}

}  // namespace

// Returns the number of the step: 0 is the sample step, and kNoStep is before
// it.
size_t StackMatcher::StepOf(int64_t begin_ns) const {
  if (begin_ns < steps_.sample_begin_ns) return kNoStep;
  if (steps_.sample_end_ns == 0 || begin_ns < steps_.sample_end_ns) return 0;
  const auto end = std::ranges::upper_bound(steps_.ends_ns, begin_ns);
  return 1 + static_cast<size_t>(end - steps_.ends_ns.begin());
}

void StackMatcher::Match(std::span<Op> ops,
                         std::span<const StackSample> samples) {
  if (std::ranges::none_of(samples, &StackSample::taken)) return;
  // A stack that was taken at the op itself is used. Matching fills only the
  // others.
  for (size_t i = 0; i < ops.size(); ++i) {
    if (samples[i].taken) ops[i].stack = samples[i].stack;
  }
  if (steps_.sample_begin_ns == 0) return;
  known_.clear();
  python_of_.assign(ops.size(), kNone);
  const std::vector<uint64_t> chains = ChainsOf(ops);
  std::vector<size_t> steps(ops.size(), kNoStep);
  Chains of_step;
  size_t current = kNoStep;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (chains[i] == 0) continue;
    steps[i] = StepOf(ops[i].begin_ns);
    if (steps[i] == kNoStep) continue;
    if (steps[i] == 0) {
      known_[chains[i]].push_back(samples[i]);
      python_of_[i] = samples[i].python;
      continue;
    }
    // Ops are in time order, so the previous step is complete.
    if (steps[i] != current)
      MatchStep(std::exchange(of_step, {}), ops, samples);
    current = steps[i];
    of_step[chains[i]].push_back(i);
  }
  MatchStep(of_step, ops, samples);
  if (!python_.modules.empty()) AddModules(ops, steps);
}

void StackMatcher::MatchStep(const Chains& chains, std::span<Op> ops,
                             std::span<const StackSample> samples) {
  if (known_.empty()) return;  // the thread was not sampled
  for (const auto& [chain, calls] : chains) {
    const auto known = known_.find(chain);
    if (known == known_.end()) {
      counts_.unmatched += static_cast<int64_t>(calls.size());
      continue;
    }
    MatchChain(calls, known->second, ops, samples);
  }
}

void StackMatcher::MatchChain(std::span<const size_t> calls,
                              std::span<const StackSample> known,
                              std::span<Op> ops,
                              std::span<const StackSample> samples) {
  const auto count = static_cast<int64_t>(calls.size());
  const bool as_often = calls.size() == known.size();
  if (!as_often && !AreAlike(known, python_.calls)) {
    counts_.unmatched += count;
    return;
  }
  const auto expected = [&](size_t i) -> const StackSample& {
    return known[as_often ? i : 0];
  };
  int64_t differs = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const StackSample& second = samples[calls[i]];
    if (!second.taken || second.stack == kNone || !expected(i).taken) continue;
    ++counts_.checked;
    differs += second.stack != expected(i).stack;
  }
  // A step that runs the chain more or less often is known to be another one,
  // and says nothing about the steps that run alike.
  if (as_often) counts_.differs += differs;
  if (differs > 0) {
    // At least one call has another stack than expected. Which of the other
    // calls do, too, is not known, so none of them gets a stack.
    counts_.unmatched += count;
    return;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!expected(i).taken) {
      ++counts_.unmatched;
      continue;
    }
    ++counts_.matched;
    python_of_[calls[i]] = expected(i).python;
    if (!samples[calls[i]].taken) ops[calls[i]].stack = expected(i).stack;
  }
}

// Adds the ranges of modules. A call of a module lasts from its first to its
// last operator, because only operators were sampled, and ends with its step at
// the latest.
void StackMatcher::AddModules(std::span<const Op> ops,
                              std::span<const size_t> steps) {
  struct OpenCall {
    uint64_t call;
    Range range;
  };
  std::vector<OpenCall> open;
  const auto close_to = [&](size_t depth) {
    // A call that the hook did not describe has no name, so it is not added.
    for (; open.size() > depth; open.pop_back()) {
      if (open.back().range.name != 0) builder_.Add(open.back().range);
    }
  };
  size_t step = kNoStep;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (steps[i] == kNoStep) continue;
    if (steps[i] != step) close_to(0);
    step = steps[i];
    const uint32_t sample = python_of_[i];
    if (sample >= python_.calls.size()) continue;
    const std::vector<uint64_t>& calls = python_.calls[sample];
    // Calls that this op shares with the previous op, from the outermost on,
    // continue.
    size_t same = 0;
    while (same < open.size() && same < calls.size() &&
           open[same].call == calls[same]) {
      ++same;
    }
    close_to(same);
    for (size_t depth = same; depth < calls.size(); ++depth) {
      Range range{.begin_ns = ops[i].begin_ns,
                  .thread = ops[i].thread,
                  .kind = RangeKind::kModule};
      if (const auto at = python_.modules.find(calls[depth]);
          at != python_.modules.end()) {
        const auto& [path, class_name] = at->second;
        // The outermost module has no path.
        range.name = builder_.Intern(path.empty() ? class_name : path);
        range.detail = builder_.Intern(class_name);
      }
      open.push_back({calls[depth], range});
    }
    for (OpenCall& call : open) {
      call.range.end_ns = std::max(call.range.end_ns, ops[i].end_ns);
    }
  }
  close_to(0);
}

}  // namespace stepscope
