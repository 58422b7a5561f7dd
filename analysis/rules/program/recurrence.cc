// Does a recurrent network run step by step in the program's own loop? Source:
// the documentation of torch.nn.LSTM, which computes the input products of all
// positions at once and runs in cuDNN or oneDNN.
#include "evidence/program/recurrence.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/host_spans.h"
#include "evidence/program/op_pace.h"
#include "replay/cpu/op_growth.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace recurrence_rules {
namespace {

constexpr char kChange[] = "recurrence in one call";
constexpr double kLaunchNs = 10'000;  // per position, on a run with a GPU

// The loops if one call runs the whole sequence. Values are per step.
struct OneCall {
  Edit edit = {};
  double loop_ns = 0;      // host time of the loops and their backward passes
  double products_ns = 0;  // device or host time of their matrix products
  double saved_ns = 0;
  bool merges_products = false;  // products of all positions become one
  // False if the sizes of products are unknown. At best, merged products then
  // take no time.
  bool sized = true;
};

// Returns `ops` as spans of host time. Joins neighbours with at most framework
// code between them, because that code is part of the loop.
std::vector<HostSpan> Stretches(const AnalysisContext& m,
                                std::vector<RowId> ops, bool joined) {
  std::ranges::sort(ops);  // the table is in time order
  std::vector<HostSpan> spans;
  for (RowId row : ops) {
    const Op& op = m.trace.ops()[row];
    const bool behind = !spans.empty() && spans.back().thread == op.thread;
    if (behind && op.end_ns <= spans.back().span.end_ns) continue;  // inside
    const int64_t gap = behind ? op.begin_ns - spans.back().span.end_ns : 0;
    if (behind && joined && gap <= kFrameworkGapNs) {
      spans.back().span.end_ns = op.end_ns;
    } else {
      spans.push_back({op.thread, {op.begin_ns, op.end_ns}});
    }
  }
  return spans;
}

double LengthOf(const std::vector<HostSpan>& spans) {
  double ns = 0;
  for (const HostSpan& one : spans) {
    ns += static_cast<double>(one.span.length());
  }
  return ns;
}

// Shortens `spans` to `keep_ns` in total, and returns how long they were.
double Cut(const std::vector<HostSpan>& spans, double keep_ns, Edit& edit) {
  const double whole = LengthOf(spans);
  const double left = std::min(1.0, keep_ns / std::max(whole, 1.0));
  for (const HostSpan& one : spans) {
    edit.cuts.push_back(
        {.thread = one.thread,
         .span = one.span,
         .keep_ns = left * static_cast<double>(one.span.length()),
         .change = kChange});
  }
  return whole;
}

// Returns how long `product`, which takes `ns`, takes per position in one call,
// where everything that does not depend on the state is a single product.
// `merged_ns` is the time per position of such a merged product. The shape of
// the result tells what the product is. If both sides exceed the inner
// dimension, it is a gradient of weights, and these merge. Of the others, half
// are products of the input, which also merge, and half are products of the
// state, which stay as they are.
double InOneCallNs(const AnalysisContext& m, RowId product, double ns,
                   double merged_ns) {
  const MatmulShape shape = CostOf(m.trace, product).matmul;
  const bool of_weights =
      m.tree.in_backward(product) && shape.k < std::min(shape.m, shape.n);
  return of_weights ? merged_ns : (merged_ns + ns) / 2;
}

// Returns the best recorded rates of product kernels, in operations per ns, by
// precision.
std::map<Precision, double> BestRates(const AnalysisContext& m) {
  std::map<Precision, double> rates;
  for (const KernelUse& use : m.kernels.uses) {
    if (!use.multiplies || use.flops <= 0 || use.ns <= 0) continue;
    double& best = rates[use.precision];
    best = std::max(best, use.flops / use.ns);
  }
  return rates;
}

// Removes the loops' kernels that are not products. Merges the products of
// named cells, which cuDNN supports: those of all positions run at the best
// recorded rate.
void KeepOnlyProducts(const AnalysisContext& m,
                      const std::vector<Recurrence>& all, OneCall& call) {
  enum class Part : uint8_t { kOther, kCell, kProduct, kMerged };
  std::vector<Part> parts(m.trace.ops().size(), Part::kOther);
  for (const Recurrence& one : all) {
    for (RowId row : one.ops) parts[row] = Part::kCell;
    for (RowId row : one.nodes) parts[row] = Part::kCell;
    for (RowId row : one.products) {
      parts[row] = one.named ? Part::kMerged : Part::kProduct;
    }
  }
  const std::map<Precision, double> rates = BestRates(m);
  for (RowId row = 0; row < parts.size(); ++row) {
    const RowId parent = m.trace.ops()[row].parent;
    if (parent != kNone && parts[row] < Part::kProduct) {
      parts[row] = std::max(parts[row], parts[parent]);
    }
  }
  for (const KernelUse& use : m.kernels.uses) {
    const RowId op = m.trace.kernels()[use.kernel].op;
    if (op == kNone || parts[op] == Part::kOther) continue;
    double keep_ns = 0;
    if (parts[op] >= Part::kProduct) {
      call.products_ns += use.ns;
      keep_ns = call.sized ? use.ns : 0;
    }
    const auto rate = rates.find(use.precision);
    if (parts[op] == Part::kMerged && use.flops > 0 && use.ns > 0 &&
        rate != rates.end()) {
      keep_ns = InOneCallNs(m, use.op, use.ns, use.flops / rate->second);
      call.merges_products = true;
    }
    if (keep_ns == use.ns) continue;
    call.edit.scales.push_back(Scaled(use, keep_ns / use.ns));
    call.saved_ns += use.ns - keep_ns;
  }
}

// Returns the parts of `spans` outside products.
std::vector<HostSpan> WithoutProducts(const AnalysisContext& m,
                                      const std::vector<HostSpan>& spans,
                                      const std::vector<RowId>& products) {
  std::map<RowId, std::pair<std::vector<Span>, std::vector<Span>>> threads;
  for (const HostSpan& one : spans) {
    threads[one.thread].first.push_back(one.span);
  }
  for (RowId row : products) {
    const Op& op = m.trace.ops()[row];
    threads[op.thread].second.push_back({op.begin_ns, op.end_ns});
  }
  std::vector<HostSpan> rest;
  for (const auto& [thread, both] : threads) {
    for (const Span& span : Subtract(Merge(both.first), Merge(both.second))) {
      rest.push_back({thread, span});
    }
  }
  return rest;
}

// On a CPU, nn.LSTM runs in oneDNN (aten::mkldnn_rnn_layer). It merges the
// products of the input of all positions into one, and those for the gradients
// of all weights as well. Only the products of the state remain separate. The
// native kernels of GRU and RNN go through the positions one by one, as the
// loop does.
void MergeProducts(const AnalysisContext& m, const Recurrence& one,
                   const OpGrowth& growth, OneCall& call) {
  for (RowId row : one.products) {
    const Op& op = m.trace.ops()[row];
    const double ns = static_cast<double>(op.end_ns - op.begin_ns);
    const double merged = growth.ArithmeticNs(row);
    if (merged < 0 || merged >= ns) continue;
    const double keep = InOneCallNs(m, row, ns, merged);
    call.edit.cuts.push_back({.thread = op.thread,
                              .span = {op.begin_ns, op.end_ns},
                              .keep_ns = keep,
                              .change = kChange});
    call.saved_ns += ns - keep;
    call.merges_products = true;
  }
}

OneCall InOneCall(const AnalysisContext& m,
                  const std::vector<Recurrence>& all) {
  OneCall call;
  // On a GPU, the products of all positions merge, which takes far less time
  // than small ones do, but how much follows only from their sizes.
  call.sized = std::ranges::all_of(all, &Recurrence::sized) &&
               (!m.has_gpu || m.trace.watched(Kind::kOpShapes));
  for (const Recurrence& one : all) {
    std::vector<HostSpan> spans = Stretches(m, one.ops, one.foreign.empty());
    const std::vector<HostSpan> nodes = Stretches(m, one.nodes, true);
    spans.insert(spans.end(), nodes.begin(), nodes.end());
    call.loop_ns += LengthOf(spans);
    // On a GPU, launching limits such a loop, so the host keeps one launch per
    // position. On a CPU, the products remain.
    if (m.has_gpu) {
      // Forward, and also backward if it was recorded.
      const double passes = nodes.empty() ? 1 : 2;
      Cut(spans, passes * kLaunchNs * static_cast<double>(one.repeats),
          call.edit);
    } else {
      call.saved_ns +=
          Cut(one.sized ? WithoutProducts(m, spans, one.products) : spans, 0,
              call.edit);
    }
  }
  if (m.has_gpu) {
    KeepOnlyProducts(m, all, call);
  } else {
    call.products_ns = call.loop_ns - call.saved_ns;
    const OpGrowth growth = GrowthOf(m);
    for (const Recurrence& one : all) {
      if (one.cell == "aten::lstm_cell") MergeProducts(m, one, growth, call);
    }
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  for (double* ns : {&call.loop_ns, &call.products_ns, &call.saved_ns}) {
    *ns /= steps;
  }
  return call;
}

void SayFix(const Recurrence& one, Finding& finding) {
  const std::string cell = one.cell == "aten::lstm_cell"  ? "LSTM"
                           : one.cell == "aten::gru_cell" ? "GRU"
                           : one.named                    ? "RNN"
                                                          : "LSTM, GRU or RNN";
  finding.fix_python =
      "run the whole sequence in one call of torch.nn." + cell +
      (one.named ? "" : ", depending on the cell") +
      "; the parameters of a cell fit (weight_ih becomes weight_ih_l0)";
  finding.fix_cpp = "run the whole sequence in one call of torch::nn::" + cell +
                    (one.named ? "" : ", depending on the cell") +
                    "; the parameters of a cell fit (weight_ih becomes "
                    "weight_ih_l0)";
  if (one.named && one.foreign.empty()) return;
  finding.fix_python +=
      "; if a position needs the output of the one before it, or the cell is "
      "of another kind, compute everything that needs no state before the "
      "loop, and use torch.compile on the body of the loop";
  finding.fix_cpp +=
      "; if a position needs the output of the one before it, or the cell is "
      "of another kind, compute everything that needs no state before the loop";
}

void Illustrate(const AnalysisContext& m, const std::vector<Recurrence>& all,
                Finding& finding) {
  for (size_t i = 0; i < std::min<size_t>(3, all.size()); ++i) {
    finding.examples.push_back(
        {m.steps.windows[all[i].step].number, all[i].forward.begin_ns,
         all[i].forward.end_ns,
         std::to_string(all[i].repeats) + " times " + all[i].cell});
  }
  const RowId op = all.front().ops.front();
  const int64_t begin_ns = all.front().forward.begin_ns;
  finding.where = CallSites(m.trace).Place(m.steps.thread, begin_ns, op);
}

Verdict CheckRnnInPython(const AnalysisContext& m) {
  std::vector<Recurrence> all = FindRecurrences(m);
  std::erase_if(all, [](const Recurrence& one) { return one.needs_state; });
  if (all.empty()) return Clean();
  const OneCall call = InOneCall(m, all);
  const Recurrence& one = all.front();
  std::set<std::string> cells;
  int64_t repeats = 0;
  for (const Recurrence& each : all) {
    cells.insert(each.cell);
    repeats += each.repeats;
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  Finding finding;
  finding.confidence = Confidence::kStrong;
  std::string names;
  for (const std::string& cell : cells) {
    names += (names.empty() ? "" : ", ") + cell;
  }
  finding.evidence =
      "A recurrent cell (" + names + ") runs " +
      Count(std::llround(static_cast<double>(repeats) / steps), "time") +
      " per step, once per position of a sequence. The loop" +
      (one.nodes.empty() ? "" : " and its backward pass") + " take" +
      (one.nodes.empty() ? "s " : " ") + Milliseconds(call.loop_ns * 1e-6) +
      (m.has_gpu ? " of host time" : " of the ") +
      (m.has_gpu ? "" : Milliseconds(m.step_ns() * 1e-6) + " step") +
      "; the matrix products in it take " +
      Milliseconds(call.products_ns * 1e-6) + ".";
  if (!one.foreign.empty()) {
    finding.evidence += " Between the cells the loop calls " + one.foreign +
                        ", which is left as it is.";
  }
  Illustrate(m, all, finding);
  finding.assumption =
      !call.sized
          ? std::string(
                "at best: one call for the whole sequence takes no "
                "time") +
                (m.has_gpu ? " but 10 us of host time per position" : "") +
                "; the sizes of its products were not recorded (record_shapes)"
      : call.merges_products
          ? "one call for the whole sequence computes the products of the "
            "input, and those for the gradients of the weights, for all "
            "positions at once, at the best rate of such products"
          : "one call for the whole sequence takes as long as the recorded "
            "products";
  if (m.has_gpu && call.sized) {
    finding.assumption += ", and 10 us of host time per position";
  }
  SayFix(one, finding);
  finding.wrong_if =
      "the input of a position depends on the output of the one before it, as "
      "in a decoder that reads its own words";
  if (!call.sized) {
    return Fire(Found{.finding = std::move(finding),
                      .bound_ns = call.saved_ns,
                      .trials = {call.edit}});
  }
  return Fire(std::move(finding), call.edit, call.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "rnn-in-python",
     .question = "Does a recurrent network run step by step in the program's "
                 "own loop?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kCompute, Cause::kHostCode},
     .check = &CheckRnnInPython,
     .reference = "torch.nn.LSTM: https://docs.pytorch.org/docs/stable/"
                  "generated/torch.nn.LSTM.html",
     .detect =
         "a step calls aten::lstm_cell, gru_cell or rnn_tanh_cell at least 8 "
         "times with the same sizes. Or a chain of ops repeats at least 8 "
         "times: a matrix product that keeps the width of the state (or "
         "computes 3 or 4 gates of that width) is combined with the input and "
         "passes through tanh or sigmoid, and the backward pass accumulates "
         "the gradients of its weights only once for all repeats. Where sizes "
         "were not recorded, the chain must have sigmoid and tanh and multiply "
         "their results, as the cells of an LSTM or GRU do",
     .avoid = "the chain is a stack of layers, whose weights have gradients of "
              "their own; the ops belong to one call of aten::lstm, gru or "
              "rnn_tanh; between the cells attention (aten::bmm), or layers "
              "that read their state, make what the next one reads",
     .fix_cpp = "torch::nn::LSTM, GRU or RNN over the whole sequence",
     .fix_python = "torch.nn.LSTM, GRU or RNN over the whole sequence; else "
                   "torch.compile on the body of the loop"}};

}  // namespace
}  // namespace recurrence_rules

extern const std::span<const Rule> kRecurrence = recurrence_rules::kRules;

}  // namespace stepscope
