// What the name of an operator says about it, and what its place in the call
// tree says: is its own time computing or dispatching?
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stepscope {

// What an operator's name says.
struct OpTraits {
  bool bookkeeping = false;    // views, sizes, empty allocations: no arithmetic
  bool kernel = false;         // computes in its own body whatever it calls
  bool parallel = false;       // splits its work over the intra-op threads
  bool communication = false;  // a collective, or the wait for one
  bool matmul = false;         // convolution or matrix product, or its backward
  bool zeroing = false;        // fills a tensor with zero
  bool adding = false;         // adds tensors
  bool accumulate_grad = false;
};
OpTraits TraitsOf(std::string_view name);

// The traits of every op of one Trace, and which ops compute. Valid while the
// Trace lives.
class OpTree {
 public:
  explicit OpTree(const Trace& trace);

  const OpTraits& traits(RowId op) const {
    return traits_[trace_.ops()[op].name];
  }
  // True if the time of `op` outside its child ops is computing: it is a leaf,
  // or all below it is bookkeeping, or its name says so. Autograd nodes never
  // compute by themselves.
  bool computes(RowId op) const { return computes_[op]; }
  // True for autograd nodes, the engine's ranges, and all below them.
  bool in_backward(RowId op) const { return in_backward_[op]; }
  // Rows of the ops of one thread in time order, outer ops first.
  std::span<const RowId> of_thread(RowId thread) const {
    return by_thread_[thread];
  }

 private:
  const Trace& trace_;
  std::vector<OpTraits> traits_;  // by NameId
  std::vector<bool> computes_;    // by RowId
  std::vector<bool> in_backward_;
  std::vector<std::vector<RowId>> by_thread_;
};

}  // namespace stepscope
