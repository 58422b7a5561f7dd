#include "engine/compare_programs.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "engine/edit_settings.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// Share of the layers' inputs that must agree on the factor. Not all must,
// because a last batch may be smaller, and some layers do not get the batch.
constexpr double kAgree = 0.9;
// Two runs of one model share at least this much of their parameters' shapes.
constexpr double kSameModel = 0.5;

// Layers whose input has the batch as its first dimension, and the argument
// that is their input.
struct Layer {
  std::string_view op;
  size_t input;
};
constexpr Layer kLayers[] = {
    {"aten::conv1d", 0},     {"aten::conv2d", 0},     {"aten::conv3d", 0},
    {"aten::linear", 0},     {"aten::addmm", 1},      {"aten::embedding", 1},
    {"aten::batch_norm", 0}, {"aten::layer_norm", 0}, {"aten::group_norm", 0}};

// The inputs of the layers in the first steady step, in order, by operator.
std::map<std::string_view, std::vector<TensorShape>> LayerInputs(
    const AnalysisContext& m) {
  std::map<std::string_view, std::vector<TensorShape>> inputs;
  if (m.steps.steady.empty()) return inputs;
  const Span& step = m.steps.windows[m.steps.steady.front()].host;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (op.begin_ns < step.begin_ns || op.begin_ns >= step.end_ns) continue;
    const std::string_view name = m.trace.name(op.name);
    const auto layer = std::ranges::find(kLayers, name, &Layer::op);
    if (layer == std::end(kLayers)) continue;
    inputs[layer->op].push_back(TensorArgument(m.trace, row, layer->input));
  }
  return inputs;
}

// Returns the batch ratio that nearly all layers agree on, 1 if they do not.
// Layers are paired in the order of their calls, because the same model calls
// them in the same order, whatever the batch is.
double RatioOfShapes(const AnalysisContext& before,
                     const AnalysisContext& after) {
  const auto first = LayerInputs(before), second = LayerInputs(after);
  std::map<double, size_t> votes;
  size_t all = 0;
  for (const auto& [op, shapes] : first) {
    const auto other = second.find(op);
    if (other == second.end()) continue;
    const size_t count = std::min(shapes.size(), other->second.size());
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int64_t>& a = shapes[i].dims;
      const std::vector<int64_t>& b = other->second[i].dims;
      if (a.empty() || a.size() != b.size() || a[0] <= 0 || b[0] <= 0) continue;
      ++all;
      if (std::equal(a.begin() + 1, a.end(), b.begin() + 1)) {
        ++votes[static_cast<double>(b[0]) / static_cast<double>(a[0])];
      }
    }
  }
  for (const auto& [ratio, count] : votes) {
    if (static_cast<double>(count) >= kAgree * static_cast<double>(all)) {
      return ratio;
    }
  }
  return 1;
}

// The parameters that get gradients in the steady steps. They decide whether
// two runs train the same model. Ops do not, because following advice replaces
// ops (a fused optimizer, one attention call), but not parameters.
struct Parameters {
  double per_step = 0;  // gradients
  std::set<std::vector<int64_t>> shapes;
};

Parameters ParametersOf(const AnalysisContext& m) {
  Parameters parameters;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (!m.tree.traits(row).accumulate_grad) continue;
    if (!InSteadyStep(m.steps, m.trace.ops()[row].begin_ns)) continue;
    ++parameters.per_step;
    const TensorShape gradient = TensorArgument(m.trace, row, 0);
    if (gradient.known()) parameters.shapes.insert(gradient.dims);
  }
  parameters.per_step /=
      static_cast<double>(std::max<size_t>(m.steps.steady.size(), 1));
  return parameters;
}

// True if one count is a multiple of the other, as when one of the runs
// accumulates gradients over several backward passes.
bool IsMultiple(double a, double b) {
  const double ratio = std::max(a, b) / std::min(a, b);
  return std::abs(ratio - std::round(ratio)) < 0.02;
}

std::string DoubtAboutModel(const AnalysisContext& before,
                            const AnalysisContext& after) {
  const Parameters a = ParametersOf(before), b = ParametersOf(after);
  if (a.per_step <= 0 || b.per_step <= 0) return "";
  if (!IsMultiple(a.per_step, b.per_step)) {
    return "the models differ: " + MeanCount(a.per_step, "parameter") +
           " with gradients per step in the first trace, " +
           MeanCount(b.per_step, "parameter") + " in the second";
  }
  if (a.shapes.empty() || b.shapes.empty()) return "";
  const auto shared =
      std::ranges::count_if(a.shapes, [&](const std::vector<int64_t>& shape) {
        return b.shapes.contains(shape);
      });
  const double share =
      static_cast<double>(shared) /
      static_cast<double>(std::max(a.shapes.size(), b.shapes.size()));
  if (share >= kSameModel) return "";
  return "the models differ: only " + Percent(share) +
         " of the parameters' shapes occur in both traces";
}

// Checks that both traces are from the same kind of machine, because a faster
// machine would look like a successful change.
std::string DoubtAboutMachine(const RunInfo& a, const RunInfo& b) {
  if (!a.cpu_model.empty() && !b.cpu_model.empty() &&
      a.cpu_model != b.cpu_model) {
    return "the traces come from different machines: " + a.cpu_model + " and " +
           b.cpu_model;
  }
  if (a.devices.empty() || b.devices.empty() ||
      a.devices[0].name == b.devices[0].name) {
    return "";
  }
  return "the traces come from different GPUs: " + a.devices[0].name + " and " +
         b.devices[0].name;
}

// Returns how the recording is damaged: the first sentence of the finding about
// the damage, as a clause. Empty if the recording is not damaged.
std::string DamageOf(const Report& report) {
  const auto finding = std::ranges::find_if(report.findings, ShowsDamage);
  if (finding == report.findings.end()) return "";
  std::string text = finding->evidence.substr(0, finding->evidence.find(". "));
  if (text.ends_with('.')) text.pop_back();
  // Makes "The program" lower-case, but not "CUPTI".
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1]))) {
    text[0] = static_cast<char>(std::tolower(text[0]));
  }
  return text;
}

}  // namespace

double BatchRatio(const AnalysisContext& before, const AnalysisContext& after,
                  bool by_shapes) {
  const int64_t a = BatchSize(before.trace), b = BatchSize(after.trace);
  if (a > 0 && b > 0) return static_cast<double>(b) / static_cast<double>(a);
  return by_shapes ? RatioOfShapes(before, after) : 1;
}

Doubts DoubtsAbout(const AnalysisContext& before,
                   const AnalysisContext& after) {
  return {.model = DoubtAboutModel(before, after),
          .machine = DoubtAboutMachine(before.trace.run(), after.trace.run())};
}

std::string WhatIsIncomplete(const Report& first, const Report& second) {
  const std::string a = DamageOf(first), b = DamageOf(second);
  if (a.empty() && b.empty()) return "";
  if (!a.empty() && !b.empty()) {
    return "both traces are incomplete, so only what they hold is compared: " +
           (a == b ? a : a + "; of the second, " + b);
  }
  const bool lacks_gpu = b.empty() ? !first.has_gpu && second.has_gpu
                                   : !second.has_gpu && first.has_gpu;
  return std::string(b.empty() ? "the first" : "the second") +
         " trace is incomplete" +
         (lacks_gpu ? " and has no GPU events, which the other has" : "") +
         ", so these are not equal recordings: " + (b.empty() ? a : b);
}

std::string WhyNoSteps(const AnalysisContext& before,
                       const AnalysisContext& after) {
  const bool first = before.stats.count == 0, second = after.stats.count == 0;
  if (!first && !second) return "";
  const bool both = first && second;
  // There may be marks that are unusable: without length, or on another thread.
  const bool marked = (first && !before.trace.steps().empty()) ||
                      (second && !after.trace.steps().empty());
  return std::string(both    ? "neither trace has "
                     : first ? "the first trace has no "
                             : "the second trace has no ") +
         (marked ? "usable " : "") + "step marks, and nothing in " +
         (both ? "them" : "it") +
         " recurs like a step. Call prof.step() (in C++ Step()) once per "
         "iteration and record again";
}

}  // namespace stepscope
