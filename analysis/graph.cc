#include "graph.h"

#include <algorithm>
#include <string_view>

namespace stepscope {
namespace {

// An op shorter than this is not worth splitting over threads: ATen does not
// for fewer than 32768 elements.
constexpr int64_t kParallelNs = 20'000;
// A longer pause between ops is the user's own code, not the framework's.
constexpr int64_t kFrameworkGapNs = 50'000;
// What making one autograd node costs.
constexpr int64_t kNodeNs = 700;
// A file that says more than this is wrong.
constexpr int kMostThreads = 1024;

std::vector<bool> Tagged(const Trace& trace, const ZeroGrad& zero_grad) {
  std::vector<bool> tagged(trace.ops().size());
  for (RowId row : zero_grad.zeroing) tagged[row] = true;
  for (RowId row : zero_grad.adding) tagged[row] = true;
  for (RowId row = 0; row < tagged.size(); ++row) {
    const RowId parent = trace.ops()[row].parent;
    if (parent != kNone && tagged[parent]) tagged[row] = true;
  }
  return tagged;
}

void Append(std::vector<Work>& chain, const Work& work) {
  if (work.ns <= 0) return;
  if (!chain.empty() && chain.back().kind == work.kind &&
      chain.back().tag == work.tag &&
      chain.back().per_sample == work.per_sample &&
      work.kind != WorkKind::kLoader) {
    chain.back().ns += work.ns;
    chain.back().ops += work.ops;
  } else {
    chain.push_back(work);
  }
}

// Parameters are as many whatever the batch: their sums and updates.
bool IsPerSample(const Trace& trace, const OpTree& tree,
                 const Segment& segment) {
  for (RowId op = segment.op; op != kNone; op = trace.ops()[op].parent) {
    if (tree.traits(op).accumulate_grad) return false;
  }
  return true;
}

Work Classify(const Trace& trace, const OpTree& tree, const Segment& segment,
              const std::vector<bool>& zero_grad, bool in_optimizer) {
  Work work{.ns = static_cast<double>(segment.length())};
  if (segment.cause == Cause::kData) {
    work.kind = WorkKind::kLoader;
    return work;
  }
  if (segment.op != kNone && zero_grad[segment.op]) {
    work.tag = WorkTag::kZeroGrad;
  }
  if (segment.cause == Cause::kCompute) {
    const Op& op = trace.ops()[segment.op];
    if (tree.traits(segment.op).parallel &&
        op.end_ns - op.begin_ns >= kParallelNs) {
      work.kind = WorkKind::kParallel;
      work.ops = 1;
    }
    work.per_sample = work.tag == WorkTag::kNone && !in_optimizer &&
                      op.end_ns - op.begin_ns >= kParallelNs &&
                      IsPerSample(trace, tree, segment);
  } else if (work.tag == WorkTag::kNone &&
             (segment.cause == Cause::kDispatch ||
              (segment.cause == Cause::kHostCode &&
               segment.length() <= kFrameworkGapNs))) {
    work.tag = WorkTag::kDispatch;
  }
  return work;
}

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

int LoaderWorkers(const Trace& trace) {
  const auto loaders = trace.loaders();
  const auto known = std::ranges::find_if(loaders, [](const Loader& loader) {
    return loader.workers >= 0 && loader.workers <= kMostThreads;
  });
  if (known != loaders.end()) return known->workers;
  for (const HostUsage& usage : trace.host_usage()) {
    if (usage.loader_workers > 0 && usage.loader_workers <= kMostThreads) {
      return usage.loader_workers;
    }
  }
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kLoader &&
        trace.name(range.name).find("_SingleProcess") !=
            std::string_view::npos) {
      return 0;
    }
  }
  return -1;
}

CpuProgram MakeCpuProgram(const Trace& trace, const OpTree& tree,
                          const Steps& steps,
                          const std::vector<std::vector<Segment>>& timelines,
                          const ZeroGrad& zero_grad,
                          const std::vector<UnusedGraph>& unused) {
  CpuProgram program;
  program.cores = std::max(trace.run().usable_cores, 0);
  if (program.cores > 0 && trace.run().local_ranks > 1) {
    program.cores = std::max(1, program.cores / trace.run().local_ranks);
  }
  for (const Settings& row : trace.settings()) {
    if (row.intra_op_threads <= kMostThreads) {
      program.threads = std::max(program.threads, row.intra_op_threads);
    }
  }
  program.workers = LoaderWorkers(trace);

  const std::vector<bool> tagged = Tagged(trace, zero_grad);
  const std::vector<Span> optimizer = OptimizerSpans(trace);
  std::vector<Span> unused_spans;
  for (const UnusedGraph& graph : unused) unused_spans.push_back(graph.span);
  unused_spans = Merge(std::move(unused_spans));
  for (const std::vector<Segment>& timeline : timelines) {
    std::vector<Work> chain;
    RowId range = kNone;
    RowId parallel_op = kNone;
    for (const Segment& segment : timeline) {
      Work work = Classify(trace, tree, segment, tagged,
                           Covers(optimizer, segment.begin_ns));
      if (work.kind == WorkKind::kParallel) {
        // An op interrupted by its own small children is one op.
        if (segment.op == parallel_op) work.ops = 0;
        parallel_op = segment.op;
      }
      const bool in_unused = work.tag == WorkTag::kDispatch &&
                             segment.op != kNone &&
                             Covers(unused_spans, segment.begin_ns);
      if (in_unused) {
        const double node_ns = std::min<double>(work.ns, kNodeNs);
        Append(chain, {.ns = node_ns, .tag = WorkTag::kUnusedGraph});
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
  for (size_t i : steps.steady) {
    program.measured_ns += steps.windows[i].tiled.length();
  }
  if (!steps.steady.empty()) program.measured_ns /= steps.steady.size();
  program.batch_cpu_ns = BatchCpuNs(trace, program);
  return program;
}

}  // namespace stepscope
