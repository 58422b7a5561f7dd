#include "context/size_variation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// Fewer steps show no pattern.
constexpr size_t kSteps = 5;
// A single shorter batch, such as the last one of an epoch, is no pattern.
constexpr double kOften = 0.25;
constexpr double kUneven = 0.10;  // difference from the median size
// The sizes must explain at least this share of the variance of the step time.
// If they explain less, something else makes the steps uneven, too.
constexpr double kExplained = 0.80;

// The inputs of the first matrix products and convolutions of a training step.
struct StepWork {
  double elements = 0;  // of the input that varies most
  double ns = 0;
  std::map<NameId, TensorShape> first;  // the input of the first call of each
};

// Includes outliers, because steps with large inputs may be classed as such.
std::vector<StepWork> WorkOfSteps(const Trace& trace, const OpTree& tree,
                                  const Steps& in) {
  std::vector<StepWork> all(in.windows.size());
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (op.inputs == kNone || !Multiplies(tree.traits(row).kind) ||
        !tree.computes(row) || tree.in_backward(row)) {
      continue;
    }
    const size_t step = WindowAt(in, &StepWindow::host, op.begin_ns);
    if (step == all.size() || all[step].first.contains(op.name)) continue;
    const size_t at = trace.name(op.name) == "aten::addmm" ? 1 : 0;
    all[step].first.try_emplace(op.name, TensorArgument(trace, row, at));
  }
  std::vector<StepWork> steps;
  for (size_t i = 0; i < all.size(); ++i) {
    const StepWindow& window = in.windows[i];
    if (window.kind != StepKind::kSteady && window.kind != StepKind::kOutlier) {
      continue;
    }
    all[i].ns = static_cast<double>(window.tiled.length());
    if (!all[i].first.empty()) steps.push_back(std::move(all[i]));
  }
  return steps;
}

// How the step times depend on the sizes, by a least-squares parabola.
struct Fit {
  double explained = 0;  // share of the variance that a straight line explains
  // Mean step time minus the time of a step of the mean size: what steps of
  // equal size would save. 0 if the times are linear in the sizes, or if the
  // difference is less than two standard errors.
  double bend_ns = 0;
  double empty_ns = 0;  // time of a step of size 0; may be negative
};

Fit FitOf(const std::vector<StepWork>& steps) {
  const double count = static_cast<double>(steps.size());
  double size = 0, time = 0;
  for (const StepWork& step : steps) {
    size += step.elements / count;
    time += step.ns / count;
  }
  double xx = 0, xxx = 0, xt = 0, tt = 0;
  for (const StepWork& step : steps) {
    const double x = step.elements - size, t = step.ns - time;
    xx += x * x;
    xxx += x * x * x;
    xt += x * t;
    tt += t * t;
  }
  if (xt <= 0 || xx <= 0 || tt <= 0) return {};
  // v is the square of x without its mean and its linear part.
  double vv = 0, vt = 0;
  for (const StepWork& step : steps) {
    const double x = step.elements - size;
    const double v = x * x - xx / count - xxx / xx * x;
    vv += v * v;
    vt += v * (step.ns - time);
  }
  const double explained = xt * xt / (xx * tt);
  const double empty = time - xt / xx * size;
  // A parabola is determined only by three different sizes.
  if (vv <= 1e-9 * xx * xx / count) {
    return {.explained = explained, .empty_ns = empty};
  }
  const double bend = vt / vv * xx / count;
  const double rest = std::max(0.0, tt - xt * xt / xx - vt * vt / vv);
  const double error =
      std::sqrt(rest / std::max(1.0, count - 3) / vv) * xx / count;
  if (bend < 2 * error) return {.explained = explained, .empty_ns = empty};
  const double to_zero = size * size - xx / count + xxx / xx * size;
  return {.explained = explained,
          .bend_ns = bend,
          .empty_ns = empty + vt / vv * to_zero};
}

bool Varies(const std::vector<StepWork>& steps) {
  std::vector<double> sizes(steps.size());
  std::ranges::transform(steps, sizes.begin(), &StepWork::elements);
  const double median = Median(sizes);
  const auto uneven = std::ranges::count_if(sizes, [&](double one) {
    return std::abs(one - median) > kUneven * median;
  });
  return static_cast<double>(uneven) >=
         kOften * static_cast<double>(steps.size());
}

// Returns "aten::addmm gets inputs from [512, 128] to [7664, 128]" for the op
// whose input varies most; "" if none varies. Sets the size of each step to the
// size of that op's input, and drops the steps that do not call it.
std::string WhatVaries(const Trace& trace, std::vector<StepWork>& steps) {
  std::string text;
  double widest = 1;
  NameId varying = 0;
  for (const auto& [name, shape] : steps.front().first) {
    TensorShape least = shape, most = shape;
    for (const StepWork& step : steps) {
      const auto other = step.first.find(name);
      if (other == step.first.end()) continue;
      if (ElementsOf(other->second) < ElementsOf(least)) least = other->second;
      if (ElementsOf(other->second) > ElementsOf(most)) most = other->second;
    }
    const double range =
        static_cast<double>(ElementsOf(most)) /
        std::max<double>(1, static_cast<double>(ElementsOf(least)));
    if (range <= widest) continue;
    widest = range;
    varying = name;
    text = std::string(trace.name(name)) + " gets inputs from " +
           InBrackets(least.dims) + " to " + InBrackets(most.dims);
  }
  std::erase_if(steps, [&](const StepWork& step) {
    return !step.first.contains(varying);
  });
  for (StepWork& step : steps) {
    step.elements = static_cast<double>(ElementsOf(step.first.at(varying)));
  }
  return text;
}

}  // namespace

SizeVariation FindSizeVariation(const Trace& trace, const OpTree& tree,
                                const Steps& in) {
  if (trace.op_inputs().empty()) return {};
  std::vector<StepWork> steps = WorkOfSteps(trace, tree, in);
  if (steps.size() < kSteps) return {};
  const std::string what = WhatVaries(trace, steps);
  if (what.empty() || steps.size() < kSteps || !Varies(steps)) return {};
  const Fit fit = FitOf(steps);
  if (fit.explained < kExplained) return {};
  SizeVariation variation{
      .what = what, .explained = fit.explained, .bend_ns = fit.bend_ns};
  const auto [shortest, longest] =
      std::ranges::minmax(steps, {}, &StepWork::ns);
  variation.shortest_ns = shortest.ns;
  variation.longest_ns = longest.ns;
  for (const StepWork& step : steps) {
    variation.mean_ns += step.ns / static_cast<double>(steps.size());
  }
  variation.grows_ns =
      variation.mean_ns - std::clamp(fit.empty_ns, 0.0, shortest.ns);
  return variation;
}

}  // namespace stepscope
