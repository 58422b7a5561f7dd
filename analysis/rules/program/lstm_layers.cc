// Does an LSTM layer run one time step after the other on a CPU, although
// oneDNN has one op for all of them? Source: ATen's RNN.cpp, use_mkldnn() and
// the conditions around it: float32 and bfloat16 (float16 without gradients),
// no projection, no packed sequence.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/recurrence.h"
#include "evidence/program/slow_doubles.h"
#include "evidence/recording_load.h"
#include "words/quantities.h"

namespace stepscope {
namespace lstm_layers_rules {
namespace {

// oneDNN's products take at least half as long as those in double precision,
// which is what they do in float32.
constexpr double kLeftOfDoubles = 0.5;
// If products take more than half of the time, the single op may be slower.
// Measured with torch 2.11 on one and two cores, 50 x 64 positions, a state of
// 256: it takes 0.4 to 0.7 times as long as packed sequences of 75 % of the
// positions. With a state of 1024, where products take nearly all time, it
// takes 1.0 to 1.5 times as long.
constexpr double kMostProducts = 0.5;

// What keeps a layer from oneDNN's op.
enum class Reason : uint8_t { kType, kPacked, kProjection };

// Returns true if the layer runs the cells one by one.
bool RunsCells(const AnalysisContext& m, RowId lstm) {
  int64_t cells = 0;
  for (RowId row : m.tree.inside(lstm)) {
    const Op& op = m.trace.ops()[row];
    const std::string_view name = m.trace.name(op.name);
    if (name == "aten::mkldnn_rnn_layer") return false;
    cells += op.parent == lstm && name == "aten::tanh";
  }
  return cells >= kLeastRepeats;
}

// A packed sequence has another number of rows at each position, and a
// projection is a product behind each cell.
Reason ReasonOf(const AnalysisContext& m, RowId lstm) {
  int64_t narrowed = 0, multiplied = 0;
  for (RowId row : m.tree.inside(lstm)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent != lstm) continue;
    narrowed += m.trace.name(op.name) == "aten::narrow";
    multiplied += m.trace.name(op.name) == "aten::matmul";
  }
  return narrowed >= kLeastRepeats     ? Reason::kPacked
         : multiplied >= kLeastRepeats ? Reason::kProjection
                                       : Reason::kType;
}

// Returns the share of a padded batch that a packed sequence keeps; 1 if sizes
// were not recorded. aten::lstm takes the rows of all positions, the number of
// rows at each position, and the states of all samples.
double FilledShare(const AnalysisContext& m, RowId lstm) {
  const RowId inputs = m.trace.ops()[lstm].inputs;
  if (inputs == kNone) return 1;
  const std::vector<Argument>& given = m.trace.op_inputs()[inputs].arguments;
  if (given.size() < 3 || given[0].dims.empty() || given[1].dims.empty() ||
      given[2].elements.empty() || given[2].elements[0].dims.size() < 2) {
    return 1;
  }
  const auto rows = static_cast<double>(given[0].dims[0]);
  const auto padded =
      static_cast<double>(given[1].dims[0] * given[2].elements[0].dims[1]);
  return rows > 0 && padded > rows ? rows / padded : 1;
}

// Returns the time of products in `spans` of the training thread, in ns per
// steady step.
double ProductsNs(const AnalysisContext& m, const std::vector<Span>& spans) {
  double ns = 0;
  for (const Span& span : spans) {
    int64_t end_ns = span.begin_ns;  // of the products so far
    for (RowId row : m.tree.of_thread(m.steps.thread, span)) {
      const Op& op = m.trace.ops()[row];
      const std::string_view name = m.trace.name(op.name);
      if (op.begin_ns < end_ns ||
          !(name == "aten::mm" || name == "aten::addmm"))
        continue;
      ns += static_cast<double>(op.end_ns - op.begin_ns);
      end_ns = op.end_ns;
    }
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

void SayFix(const AnalysisContext& m, Reason reason, RowId lstm,
            Finding& finding) {
  switch (reason) {
    case Reason::kType:
      if (m.trace.name(TensorArgument(m.trace, lstm, 0).type) ==
          "c10::BFloat16") {
        finding.evidence +=
            " It takes bfloat16, for which oneDNN needs AVX-512 or better.";
        finding.fix_python = "float32 for this layer, on this processor";
        finding.fix_cpp = finding.fix_python;
        finding.wrong_if = "oneDNN is off for a reason";
        return;
      }
      if (m.trace.watched(Kind::kOpShapes)) {
        finding.evidence +=
            " Its tensors have no type that oneDNN lacks, unless it is trained "
            "in float16.";
        finding.fix_python =
            "look for torch.backends.mkldnn.flags(enabled=False); train in "
            "bfloat16 in place of float16";
        finding.fix_cpp =
            "look for at::globalContext().setUserEnabledMkldnn(false); train "
            "in bfloat16 in place of float16";
        finding.wrong_if = "oneDNN is off for a reason";
        return;
      }
      finding.evidence +=
          " The types of its tensors were not recorded (record_shapes); the "
          "usual reason is double precision, which oneDNN lacks, others are "
          "training in float16 and torch.backends.mkldnn switched off.";
      finding.fix_python =
          "model.float() and inputs in float32, for example "
          "torch.from_numpy(array.astype(numpy.float32)): NumPy makes doubles";
      finding.fix_cpp = "model->to(torch::kFloat), and inputs of that type";
      finding.wrong_if = "the layer needs double precision";
      return;
    case Reason::kPacked:
      finding.evidence +=
          " It takes packed sequences, for which PyTorch has no such op.";
      finding.fix_python =
          "sort samples by length, so that those of a batch hardly differ, and "
          "pass padded tensors in place of pack_padded_sequence(); read the "
          "last output of each sample by its length";
      finding.fix_cpp = finding.fix_python;
      finding.wrong_if =
          "the lengths in a batch differ much, or the layer is bidirectional "
          "and must not see the padding";
      finding.confidence = Confidence::kHint;
      return;
    case Reason::kProjection:
      finding.evidence +=
          " It has a projection (proj_size), for which PyTorch has no such op.";
      finding.fix_python =
          "leave proj_size out, with a smaller hidden_size, or project the "
          "outputs of the whole sequence with one torch.nn.Linear behind it";
      finding.fix_cpp = finding.fix_python;
      finding.wrong_if = "the model is already trained";
      finding.confidence = Confidence::kHint;
      return;
  }
}

Verdict CheckLstmStepByStep(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  Verdict verdict;
  for (const Reason reason :
       {Reason::kType, Reason::kPacked, Reason::kProjection}) {
    const LstmLayers layers = FindLstmLayers(m, [&](RowId row) {
      // fp64-compute reports layers that are known to take doubles.
      return !TakesDoubles(m.trace, row) && RunsCells(m, row) &&
             ReasonOf(m, row) == reason;
    });
    if (layers.calls.empty()) continue;
    const RowId longest =
        *std::ranges::max_element(layers.calls, {}, [&](RowId row) {
          return m.trace.ops()[row].end_ns - m.trace.ops()[row].begin_ns;
        });
    const double products_ns = ProductsNs(m, layers.spans);
    const double padded_ns = reason == Reason::kPacked
                                 ? products_ns / FilledShare(m, longest)
                                 : products_ns;
    const bool may_be_double =
        reason == Reason::kType && !m.trace.watched(Kind::kOpShapes);
    if (!may_be_double && padded_ns > kMostProducts * layers.ns) continue;
    const double saved_ns =
        layers.ns - (may_be_double ? kLeftOfDoubles : 1) * padded_ns;
    if (saved_ns * 1e-6 < MinReportableGainMs(m)) continue;
    Finding finding =
        FindingAbout(m, longest, longest, OpWithShapes(m.trace, longest));
    finding.evidence =
        "Aten::lstm calls ops for each time step in place of oneDNN's op for "
        "all of them, " +
        MeanCount(static_cast<double>(layers.calls.size()) /
                      static_cast<double>(m.steps.steady.size()),
                  "time") +
        (Trains(m.trace) ? " per step. With the backward pass, this takes "
                         : " per step. This takes ") +
        Milliseconds(layers.ns * 1e-6) + " of the " +
        Milliseconds(m.step_ns() * 1e-6) + " step, its products " +
        Milliseconds(products_ns * 1e-6) + ".";
    finding.assumption =
        may_be_double ? "at best: only half the time of the products remains"
        : reason == Reason::kPacked
            ? "at best: only the time of the products remains, and as much "
              "more of it as padding needs"
            : "at best: only the time of the products remains";
    SayFix(m, reason, longest, finding);
    verdict.found.push_back(
        {.finding = std::move(finding),
         .bound_ns = LargestUnrecordedNs(m, saved_ns, layers.events)});
  }
  return verdict;
}

constexpr Rule kRules[] = {
    {.id = "lstm-step-by-step",
     .question = "Does an LSTM layer call ops for each time step on a CPU?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckLstmStepByStep,
     .reference = "torch.nn.LSTM: https://docs.pytorch.org/docs/stable/"
                  "generated/torch.nn.LSTM.html",
     .detect =
         "aten::lstm runs at least 8 cells one after the other in place of "
         "aten::mkldnn_rnn_layer, and without all but half the time of its "
         "products the step is 1 % shorter. For packed sequences, projections "
         "(both a hint), and float32, all of the products' time remains, "
         "and they must take at most half of the layer's",
     .avoid = "the types of its tensors were recorded, and are double "
              "(fp64-compute); GRU and RNN, for which PyTorch has no such op",
     .fix_cpp = "float32, padded sequences, no projection",
     .fix_python = "float32, padded sequences, no proj_size"}};

}  // namespace
}  // namespace lstm_layers_rules

extern const std::span<const Rule> kLstmLayers = lstm_layers_rules::kRules;

}  // namespace stepscope
