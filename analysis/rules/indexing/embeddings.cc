// Is the gradient of an embedding table as large as the table, although a step
// looks up only a few rows? Source of the sparse updates: torch/optim in
// PyTorch, sgd.py, adagrad.py and _functional.py (SparseAdam).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/kernel_evidence.h"
#include "evidence/optimizer_work.h"
#include "evidence/program/dense_tables.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace embeddings_rules {
namespace {

constexpr size_t kTablesShown = 3;
constexpr char kChange[] = "sparse gradients of embedding tables";

// With a dense gradient, plain SGD makes four passes over V rows: it fills the
// gradient, reads it in the update, and reads and writes the table. A sparse
// gradient of n rows is written, sorted and summed (read and written twice
// each), and read by the update, which also reads and writes its rows of the
// table: up to eight passes over n rows. With ten times as many rows as
// lookups, a sparse update moves at most a fifth of the bytes.
constexpr double kRowsPerLookup = 10;
// With fewer rows, a sparse update may still be faster than the recorded one.
// Its time is known where the memory bandwidth is. With less than two rows per
// lookup not even SGD moves less.
constexpr double kLeastRowsPerLookup = 2;

// An update with a sparse gradient. On a CPU, its time is independent of the
// size of the table: per table, and per element of the rows looked up (torch
// 2.11, one core, CPU time: 16 to 8192 rows of 64 and 256 elements). On a GPU,
// its ops make so many passes over the rows: they read or write each once.
struct SparseUpdate {
  std::string_view optimizer;  // the optimizer that it replaces
  double table_ns, element_ns, passes;
};
constexpr SparseUpdate kSparseUpdates[] = {{"SGD", 30'000, 1, 3},
                                           {"Adagrad", 120'000, 6, 17}};
constexpr SparseUpdate kSparseAdam = {"Adam", 170'000, 12, 40};
// The passes before the update: gradients of several lookups are concatenated,
// sorted by row, and summed up.
constexpr double kGradientPasses = 5;
// Rows are often looked up twice, and several threads share the work.
constexpr double kLeastElements = 0.4;

// Returns the sparse update for the optimizer that updates the tables. Of
// several optimizers, takes the one with the least work.
SparseUpdate UpdateOf(const AnalysisContext& m, const DenseTables& found) {
  SparseUpdate least = kSparseAdam;
  for (const Range& range : m.trace.ranges()) {
    const auto* one = std::ranges::find(
        kSparseUpdates, OptimizerOf(m.trace, range), &SparseUpdate::optimizer);
    if (one == std::end(kSparseUpdates) || one->table_ns >= least.table_ns) {
      continue;
    }
    const bool updates =
        std::ranges::any_of(found.update, [&](const ShortenedOp& shortened) {
          const int64_t begin = m.trace.ops()[shortened.op].begin_ns;
          return begin >= range.begin_ns && begin < range.end_ns;
        });
    if (updates) least = *one;
  }
  return least;
}

// Returns the bytes per ns that ops on rows move on the GPU; 0 if unknown.
double RowRate(const AnalysisContext& m) {
  return m.has_gpu && m.kernels.peaks.exact
             ? kGoodBandwidth * m.kernels.peaks.bytes_per_ns
             : 0;
}

// Returns the time of the gradients and updates of the rows that are looked up,
// per step, if the share `distinct` of the lookups are of different rows. 0 on
// a GPU of unknown bandwidth.
double SparseUpdateNs(const AnalysisContext& m, const DenseTables& found,
                      double distinct) {
  const SparseUpdate update = UpdateOf(m, found);
  const double rate = RowRate(m);
  double ns = 0;
  for (const DenseTable& one : found.tables) {
    const double elements =
        one.lookups * static_cast<double>(one.table.dims.back());
    if (!m.has_gpu) {
      ns +=
          one.count * update.table_ns + distinct * elements * update.element_ns;
    } else if (rate > 0) {
      const double bytes = static_cast<double>(BytesOf(m.trace, one.table)) /
                           static_cast<double>(ElementsOf(one.table));
      ns += (kGradientPasses + distinct * update.passes) * elements * bytes /
            rate;
    }
  }
  return ns;
}

std::vector<ShortenedOp> AllOps(const DenseTables& found) {
  std::vector<ShortenedOp> all = found.backward;
  all.insert(all.end(), found.update.begin(), found.update.end());
  return all;
}

// Returns the tables whose gradients can be sparse: those with many rows per
// lookup, and, on a GPU, those that gain enough even if all lookups are of
// different rows.
DenseTables FindTables(const AnalysisContext& m) {
  const auto pays = [&](const DenseTable& table) {
    const DenseTables alone = FindDenseTables(m, [&](const DenseTable& other) {
      return other.table.dims == table.table.dims;
    });
    const double saved_ns = ShortenOps(m, AllOps(alone), kChange).saved_ns -
                            alone.hidden_ns - SparseUpdateNs(m, alone, 1);
    return saved_ns * 1e-6 >= MinReportableGainMs(m);
  };
  return FindDenseTables(m, [&](const DenseTable& one) {
    const double rows = one.count * static_cast<double>(one.table.dims.front());
    if (rows >= kRowsPerLookup * one.lookups) return true;
    return RowRate(m) > 0 && rows >= kLeastRowsPerLookup * one.lookups &&
           pays(one);
  });
}

// Returns, for example, "[200000, 64] (51.2 MB)" or "3 of [200000, 64] (51.2 MB
// each)".
std::string InWords(const AnalysisContext& m, const DenseTable& one) {
  const std::string size =
      Bytes(static_cast<double>(BytesOf(m.trace, one.table)));
  const int64_t count = std::max<int64_t>(1, std::llround(one.count));
  return count == 1 ? InBrackets(one.table.dims) + " (" + size + ")"
                    : std::to_string(count) + " of " +
                          InBrackets(one.table.dims) + " (" + size + " each)";
}

std::string TablesInWords(const AnalysisContext& m,
                          const std::vector<DenseTable>& tables) {
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kTablesShown, tables.size()); ++i) {
    words.push_back(InWords(m, tables[i]));
  }
  if (tables.size() > kTablesShown) {
    words.push_back(Count(static_cast<int64_t>(tables.size() - kTablesShown),
                          "other size"));
  }
  return ListedWithAnd(words);
}

// Returns, for example, "at most 2048 of its 200000 rows (1 %)".
std::string RowsInWords(const std::vector<DenseTable>& tables) {
  double lookups = 0, rows = 0, count = 0;
  for (const DenseTable& one : tables) {
    lookups += one.lookups;
    rows += one.count * static_cast<double>(one.table.dims.front());
    count += one.count;
  }
  return "at most " + std::to_string(std::llround(lookups)) + " of " +
         (count < 1.5 ? "its " : "their ") +
         std::to_string(std::llround(rows)) + " rows (" +
         Percent(lookups / rows) + ")";
}

// How to make and update the gradients of single rows.
void SaySparse(const AnalysisContext& m, bool reduced, Finding& finding) {
  finding.fix_cpp =
      "torch::nn::EmbeddingOptions(rows, width).sparse(true) (or "
      "EmbeddingBagOptions), with an optimizer of its own for the tables: "
      "torch::optim::SGD without momentum, or Adagrad; both without weight "
      "decay";
  finding.fix_python =
      "nn.Embedding(..., sparse=True) (or EmbeddingBag), with an optimizer of "
      "its own for the tables: SparseAdam, Adagrad, or SGD without momentum, "
      "which makes dense state; all without weight_decay. SparseAdam updates "
      "the moments of a row only when it is looked up, so training differs "
      "from Adam's";
  if (m.has_gpu) {
    finding.fix_python +=
        "; or TorchRec or FBGEMM tables, which update their rows in backward";
  }
  if (reduced) {
    finding.fix_python += "; TorchRec also divides them among the ranks";
  }
  finding.wrong_if =
      "momentum, weight decay, clipping by the norm or an all-reduce with NCCL "
      "has to see the gradients of all rows";
}

// Names the line of the lookup whose gradient `backward` makes.
std::string PlaceOfLookup(const AnalysisContext& m, RowId backward) {
  const RowId node = NodeAround(m.trace, backward);
  if (node == kNone || m.trace.ops()[node].forward == kNone) return "";
  const RowId forward = m.trace.ops()[node].forward;
  const Op& op = m.trace.ops()[forward];
  return CallSites(m.trace).Source(op.thread, op.begin_ns, forward);
}

Verdict CheckWithoutSizes(const AnalysisContext& m) {
  const UnsizedTables unsized = FindUnsizedTables(m);
  const DenseTables& found = unsized.found;
  if (found.backward.empty()) {
    return Skip("the sizes of tensors were not recorded (record_shapes)");
  }
  const double backward_ns = ShortenOps(m, found.backward, kChange).ns;
  ShortenedOps all = ShortenOps(m, AllOps(found), kChange);
  const RowId first = found.backward.front().op;
  const Op& op = m.trace.ops()[first];
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.examples.push_back(
      {m.steps.windows[SteadyStepAt(m.steps, op.begin_ns)].number, op.begin_ns,
       op.end_ns, std::string(m.trace.name(op.name))});
  finding.where = PlaceOfLookup(m, first);
  finding.evidence =
      "Backward makes gradients of whole embedding tables (" +
      MeanCount(unsized.count, "table") +
      " per step): to judge by the time that filling them with zeros takes, "
      "they have many times as many rows as a step looks up. That takes " +
      Milliseconds(backward_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step, and the longest updates, as many as there are such tables, "
      "another " +
      Milliseconds((all.ns - backward_ns) * 1e-6) +
      (found.free_ns > 0 ? "; freeing the gradients takes " +
                               Milliseconds(found.free_ns * 1e-6)
                         : "") +
      ". Sizes were not recorded.";
  finding.assumption =
      "at best: these updates are of the tables, and gradients and updates of "
      "the rows that are looked up take no time";
  SaySparse(m, false, finding);
  finding.wrong_if += ", or the tables are small";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns + found.free_ns,
                    .trials = {std::move(all.edit)}});
}

Verdict CheckDenseEmbeddingGradient(const AnalysisContext& m) {
  if (!m.trace.watched(Kind::kOpShapes) && m.trace.op_inputs().empty()) {
    return CheckWithoutSizes(m);
  }
  const DenseTables found = FindTables(m);
  if (found.tables.empty()) return Clean();
  std::vector<ShortenedOp> all = AllOps(found);
  const double backward_ns = ShortenOps(m, found.backward, kChange).saved_ns;
  const double shortened_ns =
      ShortenOps(m, all, kChange).saved_ns - found.hidden_ns;
  const double dense_ns = shortened_ns + found.free_ns;
  // The sparse update takes its time instead of part of these ops.
  const double sparse_ns = SparseUpdateNs(m, found, kLeastElements);
  // For a small table, a sparse update may take longer than a dense one.
  if (shortened_ns <= sparse_ns) return Clean();
  for (ShortenedOp& one : all) {
    one.left += (1 - one.left) * sparse_ns / shortened_ns;
  }
  const ShortenedOps sparse = ShortenOps(m, std::move(all), kChange);
  const double saved_ns = dense_ns - sparse_ns;
  if (saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();

  const RowId first = found.tables.front().backward;
  const Op& op = m.trace.ops()[first];
  Finding finding;
  finding.confidence = Confidence::kStrong;
  const size_t step = SteadyStepAt(m.steps, op.begin_ns);
  finding.examples.push_back({m.steps.windows[step].number, op.begin_ns,
                              op.end_ns, OpWithShapes(m.trace, first)});
  finding.where = PlaceOfLookup(m, first);
  finding.evidence = "Backward makes gradients of whole embedding tables, " +
                     TablesInWords(m, found.tables) +
                     ", although a step looks up " + RowsInWords(found.tables) +
                     ". That takes " + Milliseconds(dense_ns * 1e-6) +
                     " of the " + Milliseconds(m.step_ns() * 1e-6) +
                     " step: " + Milliseconds(backward_ns * 1e-6) +
                     " to fill and write the gradients, " +
                     Milliseconds((shortened_ns - backward_ns) * 1e-6) +
                     (found.reduced ? " to all-reduce them and update all rows"
                                    : " to add them up and update all rows");
  if (found.free_ns > 0) {
    finding.evidence +=
        ", " + Milliseconds(found.free_ns * 1e-6) + " to free them";
  }
  finding.evidence += ".";
  finding.assumption =
      "at best: gradients and updates of the rows that are looked up take " +
      (sparse_ns > 0 ? Milliseconds(sparse_ns * 1e-6) : "no time");
  SaySparse(m, found.reduced, finding);
  // Fire a bound, because tables are freed outside of ops and the replay cannot
  // shorten that. The replay only tells whether the rest gains anything.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = saved_ns,
                    .trials = {sparse.edit}});
}

constexpr Rule kRules[] = {
    {.id = "dense-embedding-gradient",
     .question = "Is the gradient of an embedding table as large as the table, "
                 "although a step looks up few rows?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kHostCode},
     .check = &CheckDenseEmbeddingGradient,
     .reference = "PyTorch documentation: torch.nn.Embedding, sparse",
     .detect = "aten::embedding_dense_backward or "
               "aten::_embedding_bag_dense_backward makes a gradient of a "
               "table with ten times as many rows as a step looks up or more "
               "(on a GPU of known bandwidth, twice as many, if that gains 1 % "
               "of the step even where all of these rows differ), "
               "and filling, summing, all-reducing, applying and freeing such "
               "gradients "
               "takes 1 % of the step more than sparse ones would. With "
               "fewer rows a sparse gradient, which is sorted and summed, "
               "saves little. Without sizes, on a CPU, a hint: filling the "
               "gradient takes half as long as the rest of the op or longer",
     .avoid = "another layer uses the table as well (a tied output layer), "
              "sparse gradients are not implemented (scale_grad_by_freq, bags "
              "by maximum), or sizes were not recorded",
     .fix_cpp = "EmbeddingOptions(...).sparse(true), with SGD or Adagrad for "
                "the tables",
     .fix_python = "nn.Embedding(sparse=True), with SparseAdam, Adagrad or SGD "
                   "for the tables"}};

}  // namespace
}  // namespace embeddings_rules

extern const std::span<const Rule> kEmbeddings = embeddings_rules::kRules;

}  // namespace stepscope
