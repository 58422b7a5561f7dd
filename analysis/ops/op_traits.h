// OpTraits describes an operator by its name alone. OpTree adds what follows
// from the op's place in the call tree: whether its own time is computing or
// dispatching, and whether it is part of a backward pass.
#pragma once

#include <stepscope/kernel_class.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

// The most that calling an op costs besides its work: PyTorch's dispatcher and
// autograd take some 5 to 20 us. An op pays this once for itself and once for
// each op that it calls. Any own time beyond that is computing.
inline constexpr int64_t kOpCallNs = 20'000;

// Each flag stands for a list of names in op_traits.cc. Unlisted ops have no
// flag.
struct OpTraits {
  KernelClass kind = KernelClass::kUnknown;  // as ClassOfOp() in op_cost.h
  bool bookkeeping = false;    // views, sizes, empty allocations: no arithmetic
  bool kernel = false;         // computes in its own body even if it calls ops
  bool parallel = false;       // splits its work over the intra-op threads
  bool communication = false;  // a collective, or the wait for one
  bool matmul = false;         // convolution, matrix product or attention
  bool zeroing = false;        // fills a tensor with zero
  bool adding = false;         // adds tensors
  bool accumulate_grad = false;  // adds a gradient to a parameter's .grad
  // One of the ops with which optimizers update parameters and their state.
  // Models use some of them, too.
  bool update = false;
};
// `name` as recorded: "aten::addmm", "c10d::allreduce_".
OpTraits TraitsOf(std::string_view name);

// True if a range or Python function of that name shows torch.compile
// compiling. Dynamo opens a range "NAME (dynamo_timed)" around each of its
// phases, and enters convert_frame.py only for code that it has not compiled
// yet.
bool IsCompiling(std::string_view name);

// Returns the innermost autograd node or engine range around `op`, which may be
// `op` itself; kNone if there is none, or `op` is kNone.
RowId NodeAround(const Trace& trace, RowId op);

// The traits of all ops of one Trace and their place in the call tree. Reads
// the ops once, in the constructor. Valid while the Trace lives; any thread may
// read it.
class OpTree {
 public:
  explicit OpTree(const Trace& trace);

  // REQUIRES for all of these: `op` is a row of trace.ops().
  const OpTraits& traits(RowId op) const {
    return traits_[trace_.ops()[op].name];
  }
  // True if the time of `op` outside its child ops is spent computing: the op
  // is a leaf, all ops below it are bookkeeping, its name says that it
  // computes, or it takes longer than calling its child ops can. Never true for
  // autograd nodes, which only call operators.
  bool computes(RowId op) const { return computes_[op]; }
  // True for autograd nodes, the engine's ranges, and all ops below them.
  bool in_backward(RowId op) const { return in_backward_[op]; }
  // The ops of one thread in time order, outer ops before those inside them.
  // Empty for kNone.
  std::span<const RowId> of_thread(RowId thread) const {
    if (thread == kNone) return {};
    return by_thread_[thread];
  }
  // The ops of the thread that start in `window`.
  std::span<const RowId> of_thread(RowId thread, Span window) const;
  // `op` and the ops inside it, in time order; empty for an op whose thread is
  // not known.
  std::span<const RowId> inside(RowId op) const;
  // The ops of that name, on any thread, as ascending rows. A rule that judges
  // one kind of op need not go through all ops.
  std::span<const RowId> named(std::string_view name) const;
  // The threads that run backward nodes, as ascending rows of threads().
  std::span<const RowId> backward_threads() const { return backward_threads_; }

 private:
  const Trace& trace_;
  std::vector<OpTraits> traits_;   // by NameId
  std::vector<bool> computes_;     // by RowId
  std::vector<bool> in_backward_;  // by RowId
  std::vector<std::vector<RowId>> by_thread_;
  std::vector<std::vector<RowId>> by_name_;  // by NameId
  std::unordered_map<std::string_view, NameId> names_;
  std::vector<RowId> backward_threads_;
};

}  // namespace stepscope
