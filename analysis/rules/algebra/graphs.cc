// Does a graph network write one row per edge, only to sum these rows up?
// Source: the PyTorch Geometric documentation, "Memory-Efficient Aggregations":
// a product with a sparse matrix makes the same sums without these rows.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/message_passes.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "evidence/tensors/index_puts.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace graphs_rules {
namespace {

// Without sizes, this many passes per step, one per layer, show a graph
// network. One alone may be a lookup whose rows are put in groups. Our own
// choice.
constexpr double kLeastLayers = 2;
// Bytes of an index: PyTorch's are of 64 bits, in lists of edges as in CSR
// matrices.
constexpr double kIndexBytes = 8;
// How often the ops move the row of an edge: the gather reads and writes it,
// and the scatter reads it and adds it to a sum, which it reads and writes.
constexpr double kGatherMoves = 2, kScatterMoves = 3;
constexpr char kChange[] = "sums over edges by a sparse product";

// What a gather of one row per edge moves, and what the product moves that
// reads the same rows and writes `sums` rows instead. In the product, each edge
// has an index and a value.
double GatherBytes(const MessagePass& one) {
  return static_cast<double>(one.edges) *
         (kGatherMoves * one.row_bytes + kIndexBytes);
}
double ProductBytes(const MessagePass& one, int64_t sums) {
  return static_cast<double>(one.edges) *
             (one.row_bytes + kIndexBytes + one.element_bytes) +
         static_cast<double>(sums) * one.row_bytes;
}
// Both read the rows of the edges in any order, so the product is taken to move
// bytes at the rate of the gather. Without sizes, it is taken to take as long,
// which is the most it can with at least as many edges as sums.
double LeftOfGather(const MessagePass& one, int64_t sums) {
  return one.sized() ? std::min(1.0, ProductBytes(one, sums) / GatherBytes(one))
                     : 1;
}

// Adds the ops of one pass. The gather stands for the product, and the rest is
// not needed. In backward it is the node of the scatter that gathers: it stands
// for the product with the transposed matrix.
void Append(const AnalysisContext& m, const MessagePass& one,
            std::vector<ShortenedOp>& ops) {
  const std::span<const Op> rows = m.trace.ops();
  ops.push_back({one.gather, LeftOfGather(one, one.targets)});
  ops.push_back({one.scatter, 0});
  for (RowId row : one.zeroing) ops.push_back({row, 0});
  for (RowId row : one.scaling) AppendWithNodes(m, row, 0, ops);
  for (RowId node : m.backward.Of(rows[one.gather])) ops.push_back({node, 0});
  for (RowId node : m.backward.Of(rows[one.scatter])) {
    ops.push_back({node, LeftOfGather(one, one.sources)});
  }
}

// All passes, in all steady steps.
struct Total {
  std::vector<ShortenedOp> ops = {};
  bool sized = true, trains = false;
  double moved = 0, by_products = 0;  // bytes
  const MessagePass* largest = nullptr;
};

Total Sum(const AnalysisContext& m, const std::vector<MessagePass>& found) {
  Total sum;
  for (const MessagePass& one : found) {
    Append(m, one, sum.ops);
    const std::span<const Op> rows = m.trace.ops();
    const bool trains = !m.backward.Of(rows[one.scatter]).empty();
    const double passes = trains ? 2 : 1;
    sum.trains |= trains;
    sum.sized &= one.sized();
    sum.moved +=
        passes * (GatherBytes(one) + static_cast<double>(one.edges) *
                                         kScatterMoves * one.row_bytes);
    sum.by_products += ProductBytes(one, one.targets) +
                       (trains ? ProductBytes(one, one.sources) : 0);
    const auto bytes = [](const MessagePass& pass) {
      return static_cast<double>(pass.edges) * pass.row_bytes;
    };
    if (!sum.largest || bytes(one) > bytes(*sum.largest)) sum.largest = &one;
  }
  return sum;
}

std::string Evidence(const AnalysisContext& m, const Total& sum, double passes,
                     double ns) {
  const MessagePass& one = *sum.largest;
  const auto name = [&](RowId row) {
    return std::string(m.trace.name(m.trace.ops()[row].name));
  };
  std::string words =
      name(one.gather) + " writes the row of a node for each edge" +
      (one.sized() ? ", " + std::to_string(one.edges) + " rows (" +
                         Bytes(static_cast<double>(one.edges) * one.row_bytes) +
                         ") from " + std::to_string(one.sources) + " nodes"
                   : "") +
      ", " + (one.scaling.empty() ? "" : "each is multiplied by a weight, ") +
      "and " + name(one.scatter) + " sums them up" +
      (one.sized() ? " in " + std::to_string(one.targets) + " rows" : "") +
      ", " + MeanCount(passes, "time") + " per step" +
      (sum.trains ? ", and backward does the same the other way round" : "") +
      ". This takes " + Milliseconds(ns * 1e-6) + " per step (" +
      Percent(ns / std::max(m.kernels.compute_ns, 1.0)) +
      " of the compute time).";
  if (sum.sized) {
    words += " It moves " + Bytes(sum.moved / m.kernels.steps) +
             ", where products with a sparse matrix move " +
             Bytes(sum.by_products / m.kernels.steps) + ".";
  }
  return words;
}

Verdict CheckGatherScatter(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<MessagePass> found = FindMessagePasses(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  // Most of the time is then that of sorting (sorted-index-gradient).
  if (SumsDeterministically(m.trace)) return Clean();
  Total sum = Sum(m, found);
  const double passes = static_cast<double>(found.size()) / m.kernels.steps;
  if (!sum.sized && passes < kLeastLayers) return Clean();
  ShortenedOps all = ShortenOps(m, std::move(sum.ops), kChange);
  // The host calls the products and what they need in place of these ops.
  all.edit.cuts.clear();
  if (all.saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  const MessagePass& largest = *sum.largest;
  Finding finding = FindingAbout(m, largest.gather, largest.scatter,
                                 "rows of edges, gathered and summed up");
  if (!sum.sized) finding.confidence = Confidence::kHint;
  finding.evidence = Evidence(m, sum, passes, all.ns);
  finding.assumption =
      sum.sized
          ? "a sparse product reads one row per edge at the rate of the "
            "gather, writes one row per node, and adds in registers; what the "
            "cache holds of the nodes makes it faster"
          : "a sparse product takes as long as the gather, whose rows it "
            "reads, too";
  finding.fix_python =
      "multiply by a sparse matrix that is built once: adjacency = "
      "torch.sparse_coo_tensor(torch.stack([target, source]), weights, (nodes, "
      "nodes)).to_sparse_csr(); adjacency @ x. In PyG, pass adj_t "
      "(T.ToSparseTensor()) or an EdgeIndex, which also keep the edges sorted "
      "for backward, in place of edge_index (layers of your own need "
      "message_and_aggregate()); in DGL, update_all with fn.copy_u or "
      "fn.u_mul_e, and fn.sum";
  finding.fix_cpp =
      "multiply by a sparse matrix that is built once: torch::mm(adjacency, x) "
      "with adjacency = torch::sparse_coo_tensor(torch::stack({target, "
      "source}), weights, {nodes, nodes}).to_sparse_csr()";
  finding.wrong_if =
      "the graph changes in each step and its edges come in any order, because "
      "sorting them takes time, too; or the sums are maxima, which only "
      "torch_sparse and DGL have";
  return FireForKernels(m, std::move(finding), std::move(all.edit),
                        all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "gather-scatter",
     .question = "Does a graph network write one row per edge, only to sum "
                 "these rows up?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckGatherScatter,
     .reference = "PyTorch Geometric documentation, Memory-Efficient "
                  "Aggregations: https://pytorch-geometric.readthedocs.io/en/"
                  "latest/advanced/sparse_tensor.html",
     .detect =
         "in two thirds of the steps, index_select, x[index] or gather makes "
         "one row per edge, and scatter_add, index_add, scatter_reduce, "
         "index_put with accumulate=True or an op of torch_scatter sums these "
         "rows up, at least two in each sum; in between they are at most "
         "multiplied by one weight each, without a gradient. Where sizes were "
         "not recorded, a hint: no other op runs in between, and there are two "
         "such layers per step or more",
     .avoid = "the message depends on both ends of an edge (a layer or an "
              "activation on the rows of the edges), its weight is trained or "
              "an attention, or the rows are taken again: then they are "
              "needed; or torch.use_deterministic_algorithms is on, which "
              "costs more (sorted-index-gradient)",
     .fix_cpp = "torch::mm with a sparse CSR matrix",
     .fix_python = "a sparse CSR matrix @ x; PyG's adj_t; DGL's update_all",
     .change = kChange}};

}  // namespace
}  // namespace graphs_rules

extern const std::span<const Rule> kGraphs = graphs_rules::kRules;

}  // namespace stepscope
