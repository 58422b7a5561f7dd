// Does a recurrent layer copy its weights into one buffer in each call?
// Source: the documentation of torch.nn.RNNBase.flatten_parameters, and the
// warning of ATen's RNN.cpp, "RNN module weights are not part of single
// contiguous chunk of memory".
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace rnn_weights_rules {
namespace {

// One layer has two matrices and, as a rule, two biases. The input and the two
// initial states may be copied for other reasons.
constexpr size_t kLeastWeights = 4;

// A call of a recurrent layer that copies its weights.
struct Call {
  size_t step = 0;
  RowId op = kNone;
  std::vector<RowId> copies = {};
};

std::vector<Call> FindCalls(const AnalysisContext& m) {
  std::vector<Call> found;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step == m.steps.windows.size() ||
        !IsAnyOf(m.trace.name(op.name),
                 {"aten::_cudnn_rnn", "aten::miopen_rnn"})) {
      continue;
    }
    Call call{.step = step, .op = row};
    for (RowId inside : m.tree.inside(row)) {
      if (m.trace.ops()[inside].parent == row &&
          m.trace.name(m.trace.ops()[inside].name) == "aten::copy_") {
        call.copies.push_back(inside);
      }
    }
    if (call.copies.size() >= kLeastWeights) found.push_back(std::move(call));
  }
  return found;
}

Verdict CheckScatteredRnnWeights(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<Call> found = FindCalls(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Call& call : found) {
    for (RowId copy : call.copies) ops.push_back({copy, 0});
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  const double copies = static_cast<double>(ops.size()) / steps;
  ShortenedOps all =
      ShortenOps(m, std::move(ops), "weights of the RNN in one buffer");
  const Call& first = found.front();
  Finding finding =
      FindingAbout(m, first.op, first.op, "a call that copies the weights");
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "A recurrent layer copies its weights into one buffer in each call, "
      "because they do not lie in one: " +
      MeanCount(copies, "copy", "copies") + " in " +
      MeanCount(static_cast<double>(found.size()) / steps, "call") +
      " per step, " + Milliseconds(all.ns * 1e-6) + " on the GPU.";
  finding.assumption = "nothing is copied";
  finding.fix_python =
      "call rnn.flatten_parameters() once: after a copy.deepcopy(), after "
      "weights were replaced, or at the start of forward() in replicas of "
      "DataParallel";
  finding.fix_cpp =
      "call rnn->flatten_parameters() once, after weights were replaced";
  finding.wrong_if =
      "the weights are computed anew in each step, as weight_norm does";
  return Fire(std::move(finding), std::move(all.edit), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "scattered-rnn-weights",
     .question = "Does a recurrent layer copy its weights into one buffer in "
                 "each call?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kCopy, Cause::kCompute, Cause::kDispatch},
     .check = &CheckScatteredRnnWeights,
     .reference = "PyTorch documentation, torch.nn.LSTM: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.LSTM.html",
     .detect = "in two thirds of the steps, a call of aten::_cudnn_rnn or "
               "aten::miopen_rnn copies four tensors or more itself",
     .avoid = "it copies at most three, the input and the initial states",
     .fix_cpp = "rnn->flatten_parameters()",
     .fix_python = "rnn.flatten_parameters()",
     .change = "weights of the RNN in one buffer"}};

}  // namespace
}  // namespace rnn_weights_rules

extern const std::span<const Rule> kRnnWeights = rnn_weights_rules::kRules;

}  // namespace stepscope
