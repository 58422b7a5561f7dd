#include "replay/cpu/graph.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "ops/op_arguments.h"
#include "replay/cpu/node_stacks.h"
#include "replay/cpu/op_growth.h"
#include "replay/model/replay_parameters.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// ATen does not split ops of fewer than 32768 elements over threads. Ops of
// that size take about 20 us.
constexpr int64_t kParallelNs = 20'000;
// An AccumulateGrad node takes less than this by itself unless it frees a large
// gradient.
constexpr double kNodeOwnNs = 5'000;
// Cost of getting a page from the system / cost of returning it. Getting a page
// costs more because the system zeroes it. 5 to 12 times was measured in a
// virtual machine; 4 is cautious.
constexpr double kFaultCostPerRelease = 4;
// The first touch of a 4 KiB page takes 0.25 us, and more in a virtual machine.
constexpr double kFaultNsPerByte = 250.0 / 4096;
// When a block is freed, malloc keeps smaller ones in its own lists and returns
// larger ones to the system (initial M_MMAP_THRESHOLD).
constexpr double kOwnBlockBytes = 128 << 10;
// Files that name more threads or workers than this are damaged.
constexpr int kMaxThreads = 1024;
// Limits the queue, because a replay must first run enough steps to fill it.
constexpr int kMostAhead = 32;

// By row of ops(): true for `rows` and all ops below them.
std::vector<bool> WithAllBelow(const Trace& trace,
                               std::initializer_list<std::vector<RowId>> rows) {
  std::vector<bool> tagged(trace.ops().size());
  for (const std::vector<RowId>& list : rows) {
    for (RowId row : list) tagged[row] = true;
  }
  for (RowId row = 0; row < tagged.size(); ++row) {
    const RowId parent = trace.ops()[row].parent;
    if (parent != kNone && tagged[parent]) tagged[row] = true;
  }
  return tagged;
}

// Adds a piece of work to the chain. Joins neighbours of the same kind, except
// batches, because the queue hands them out one by one.
void Append(std::vector<Work>& chain, const Work& work) {
  if (work.ns <= 0) return;
  if (!chain.empty() && chain.back().kind == work.kind &&
      chain.back().tag == work.tag && chain.back().update == work.update &&
      work.kind != WorkKind::kLoader) {
    chain.back().ns += work.ns;
    chain.back().grows_ns += work.grows_ns;
    chain.back().ops += work.ops;
    chain.back().span.end_ns = work.span.end_ns;
  } else {
    chain.push_back(work);
  }
}

// True if the work grows with the batch. False for accumulating gradients,
// because parameters have the same size for any batch.
bool IsPerSample(const Trace& trace, const OpTree& tree,
                 const Segment& segment) {
  for (RowId op = segment.op; op != kNone; op = trace.ops()[op].parent) {
    if (tree.traits(op).accumulate_grad) return false;
  }
  return true;
}

// The computing ops of the timelines, sorted.
std::vector<RowId> ComputingOps(
    const std::vector<std::vector<Segment>>& timelines) {
  std::vector<RowId> ops;
  for (const std::vector<Segment>& timeline : timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause == Cause::kCompute) ops.push_back(segment.op);
    }
  }
  std::ranges::sort(ops);
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  return ops;
}

// Turns segments of the timeline into pieces of work.
class Classifier {
 public:
  Classifier(const Trace& trace, const OpTree& tree, const StepParts& parts,
             const std::vector<std::vector<Segment>>& timelines,
             const std::vector<Span>& unused, RowId thread)
      : trace_(trace),
        tree_(tree),
        zeroes_(WithAllBelow(
            trace, {parts.zero_grad.zeroing, parts.zero_grad.adding})),
        checks_(WithAllBelow(trace, {FindNanChecks(trace)})),
        adds_to_zeros_(!parts.zero_grad.adding.empty()),
        optimizer_(parts.optimizer.spans),
        openings_(OpeningLoads(trace, thread)),
        saving_(SavingSpans(trace, thread)),
        stacks_(trace, tree, unused),
        growth_(trace, ComputingOps(timelines)) {}

  // The part of a computing segment that anomaly mode spends on the stack trace
  // of the op's node, in ns.
  double StackNs(const Segment& segment) const {
    if (segment.cause != Cause::kCompute || segment.op == kNone ||
        checks_[segment.op]) {
      return 0;
    }
    return stacks_.PartOf(segment.op) * static_cast<double>(segment.length());
  }
  WorkTag StackTag(const Segment& segment) const {
    return stacks_.InUnusedGraph(segment.op) ? WorkTag::kUnusedStack
                                             : WorkTag::kAnomaly;
  }

  Work Classify(const Segment& segment) const {
    Work work{.ns = static_cast<double>(segment.length()),
              .span = {segment.begin_ns, segment.end_ns}};
    if (segment.cause == Cause::kData) {
      if (std::ranges::binary_search(openings_, segment.range)) {
        // The kind is not kLoader, because workers cannot make this batch in
        // advance.
        work.grows_ns = work.ns;
      } else {
        work.kind = WorkKind::kLoader;
      }
      return work;
    }
    if (segment.op != kNone && zeroes_[segment.op]) {
      work.tag = WorkTag::kZeroGrad;
    } else if (segment.op != kNone && checks_[segment.op]) {
      work.tag = WorkTag::kAnomaly;
    }
    const bool updates =
        work.tag == WorkTag::kNone && Covers(optimizer_, segment.begin_ns);
    if (segment.cause == Cause::kCompute) {
      if (updates) work.update = Update::kComputing;
      AsComputing(segment, work);
    } else if (work.tag == WorkTag::kNone &&
               (segment.cause == Cause::kDispatch ||
                (segment.cause == Cause::kHostCode &&
                 segment.length() <= kFrameworkGapNs))) {
      work.tag = WorkTag::kDispatch;
      if (updates) work.update = Update::kAround;
    } else if (work.tag == WorkTag::kNone) {
      // The program's own code, and waits for other ranks. The waits grow
      // because the other ranks' batches grow as well.
      work.grows_ns = work.ns;
    }
    const auto saving = static_cast<double>(
        LengthIn(saving_, {segment.begin_ns, segment.end_ns}));
    work.grows_ns = std::min(work.grows_ns, work.ns - saving);
    return work;
  }

  // The part of a computing segment, in ns, in which the op touches new pages
  // because the autograd graph keeps the memory of earlier results from being
  // reused.
  double HeldPagesNs(const Segment& segment) const {
    if (segment.cause != Cause::kCompute || segment.op == kNone) return 0;
    const Op& op = trace_.ops()[segment.op];
    const OpCost cost = CostOf(trace_, segment.op);
    const double elements = cost.matmul.m > 0
                                ? static_cast<double>(cost.matmul.batch) *
                                      static_cast<double>(cost.matmul.m) *
                                      static_cast<double>(cost.matmul.n)
                                : cost.elements;
    const double bytes =
        elements * static_cast<double>(ElementBytes(trace_.name(
                       TensorArgument(trace_, segment.op, 0).type)));
    if (bytes < kOwnBlockBytes || op.end_ns <= op.begin_ns) return 0;
    const auto length = static_cast<double>(segment.length());
    const double share = length / static_cast<double>(op.end_ns - op.begin_ns);
    return std::min(length / 2, share * bytes * kFaultNsPerByte);
  }

  // The time in ns in which an AccumulateGrad node returns a gradient's memory
  // to the system, after adding it to a zeroed one. With gradients set to None,
  // the gradient is kept instead.
  double PageReleaseNs(const Segment& segment) const {
    if (!adds_to_zeros_ || segment.op == kNone ||
        segment.cause != Cause::kDispatch ||
        !tree_.traits(segment.op).accumulate_grad) {
      return 0;
    }
    return std::max(0.0, static_cast<double>(segment.length()) - kNodeOwnNs);
  }

 private:
  void AsComputing(const Segment& segment, Work& work) const {
    const Op& op = trace_.ops()[segment.op];
    const double whole = static_cast<double>(op.end_ns - op.begin_ns);
    if (whole >= kParallelNs && tree_.traits(segment.op).parallel) {
      work.kind = WorkKind::kParallel;
      work.ops = 1;
    }
    if (work.tag == WorkTag::kNone && work.update == Update::kNone &&
        IsPerSample(trace_, tree_, segment)) {
      const double fixed = kOpOwnNs + growth_.FixedNs(segment.op);
      work.grows_ns = work.ns * std::max(0.0, 1 - fixed / whole);
    }
  }

  const Trace& trace_;
  const OpTree& tree_;
  std::vector<bool> zeroes_, checks_;
  bool adds_to_zeros_;
  const std::vector<Span>& optimizer_;
  std::vector<RowId> openings_;
  std::vector<Span> saving_;
  NodeStacks stacks_;
  OpGrowth growth_;
};

// Subtracts the page faults of a gradient from the op that made it: up to `ns`
// from the last parallel op in `chain`, at most half of each of its parts.
// Returns what it subtracted. These faults disappear if the gradient's pages
// are no longer returned to the system.
double TakePageFaults(std::vector<Work>& chain, double ns) {
  double taken = 0;
  for (size_t i = chain.size(); i-- > 0 && taken < ns;) {
    Work& work = chain[i];
    if (work.kind == WorkKind::kLoader) break;
    if (work.kind != WorkKind::kParallel || work.tag != WorkTag::kNone) {
      continue;
    }
    const double part = std::min(ns - taken, work.ns / 2);
    work.grows_ns = std::min(work.grows_ns, work.ns - part);
    work.ns -= part;
    taken += part;
    if (work.ops > 0) break;  // the first part of the op that made the gradient
  }
  return taken;
}

// The share of the time of `cause` that is left without the profiler. `raw` is
// the time as recorded; `split` has the cost of recording moved to kProfiler.
double KeptOf(Cause cause, const CauseTimes& raw, const CauseTimes& split) {
  if (cause == Cause::kProfiler) return 0;
  if (cause != Cause::kDispatch && cause != Cause::kHostCode &&
      cause != Cause::kData) {
    return 1;
  }
  return static_cast<double>(split[cause]) /
         std::max(static_cast<double>(raw[cause]), 1.0);
}

// CPU time of a batch in ns. With workers, their measured CPU time per step;
// without workers, the time that the training thread takes per batch. 0 if
// unknown.
double BatchCpuNs(const Trace& trace, const CpuProgram& program) {
  double total = 0;
  int64_t batches = 0;
  if (program.workers == 0) {
    for (const auto& step : program.steps) {
      for (const Work& work : step) {
        if (work.kind != WorkKind::kLoader) continue;
        total += work.ns;
        ++batches;
      }
    }
  } else {
    for (const HostUsage& usage : trace.host_usage()) {
      if (usage.loader_cpu_ns < 0) continue;
      total += usage.loader_cpu_ns;
      ++batches;
    }
  }
  return batches > 0 ? total / batches : 0;
}

}  // namespace

CpuProgram MakeCpuProgram(const Trace& trace, const OpTree& tree,
                          const Steps& steps,
                          const std::vector<std::vector<Segment>>& timelines,
                          const std::vector<CauseTimes>& splits,
                          const StepParts& parts) {
  CpuProgram program;
  program.cores = std::max(trace.run().usable_cores, 0);
  // The ranks of a host share its cores.
  if (program.cores > 0 && trace.run().local_ranks > 1) {
    program.cores = std::max(1, program.cores / trace.run().local_ranks);
  }
  for (const Settings& row : trace.settings()) {
    if (row.intra_op_threads <= kMaxThreads) {
      program.threads = std::max(program.threads, row.intra_op_threads);
    }
  }
  if (program.threads <= 0 && trace.run().told_threads <= kMaxThreads) {
    program.threads = std::max(trace.run().told_threads, 0);
  }
  program.workers = LoaderWorkers(trace);
  if (const int ahead = LoaderBatchesAhead(trace); ahead > 0) {
    program.batches_ahead = std::min(ahead, kMostAhead);
  }

  std::vector<Span> unused_spans;
  for (const UnusedGraph& graph : parts.unused_graphs)
    unused_spans.push_back(graph.span);
  unused_spans = Merge(std::move(unused_spans));
  const Classifier classifier(trace, tree, parts, timelines, unused_spans,
                              steps.thread);
  for (size_t step = 0; step < timelines.size(); ++step) {
    const std::vector<Segment>& timeline = timelines[step];
    CauseTimes raw;
    for (const Segment& segment : timeline) {
      raw[segment.cause] += segment.length();
    }
    std::vector<Work> chain;
    RowId range = kNone;
    RowId parallel_op = kNone;
    for (const Segment& segment : timeline) {
      // Splits off the parts of the segment that an edit can drop, one by one,
      // and appends the rest at the end.
      Work work = classifier.Classify(segment);
      const double kept = KeptOf(segment.cause, raw, splits[step]);
      work.ns *= kept;
      work.grows_ns *= kept;
      if (const double back = classifier.PageReleaseNs(segment); back > 0) {
        const double faults =
            TakePageFaults(chain, kFaultCostPerRelease * back);
        Append(chain, {.ns = back + faults,
                       .tag = WorkTag::kZeroGrad,
                       .span = work.span});
        work.ns -= back;
      }
      if (const double stack = classifier.StackNs(segment); stack > 0) {
        Append(chain, {.ns = stack,
                       .tag = classifier.StackTag(segment),
                       .span = work.span});
        work.ns -= stack;
        work.grows_ns = std::min(work.grows_ns, work.ns);
      }
      if (work.kind == WorkKind::kParallel) {
        // An op whose time is interrupted by small child ops counts once.
        if (segment.op == parallel_op) work.ops = 0;
        parallel_op = segment.op;
      }
      const bool in_unused =
          segment.op != kNone && Covers(unused_spans, segment.begin_ns);
      const double held_ns =
          in_unused && work.tag == WorkTag::kNone
              ? std::min(work.ns, classifier.HeldPagesNs(segment))
              : 0;
      if (held_ns > 0) {
        Append(chain, {.ns = held_ns,
                       .tag = WorkTag::kUnusedGraph,
                       .grows_ns = held_ns,
                       .span = work.span});
        work.ns -= held_ns;
        work.grows_ns = std::min(work.grows_ns, work.ns);
      }
      if (in_unused && work.tag == WorkTag::kDispatch) {
        const double node_ns = std::min<double>(work.ns, kNodeNs);
        Append(
            chain,
            {.ns = node_ns, .tag = WorkTag::kUnusedGraph, .span = work.span});
        work.ns -= node_ns;
      }
      if (work.kind == WorkKind::kLoader) {
        program.has_loader = true;
        // One loader range is one batch, however many ops lie in it.
        if (segment.range == range && !chain.empty() &&
            chain.back().kind == WorkKind::kLoader) {
          chain.back().ns += work.ns;
          continue;
        }
        range = segment.range;
      }
      Append(chain, work);
    }
    program.steps.push_back(std::move(chain));
  }
  // Gains refer to the step without the recorder.
  for (const CauseTimes& split : splits) {
    program.measured_ns +=
        static_cast<double>(split.total() - split[Cause::kProfiler]);
  }
  program.measured_ns /= std::max<double>(splits.size(), 1);
  program.batch_cpu_ns = BatchCpuNs(trace, program);
  program.rate = MeasureLoaderRate(trace, steps, program.cores,
                                   program.measured_ns);
  return program;
}

}  // namespace stepscope
