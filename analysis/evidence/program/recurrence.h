// FindRecurrences(): recurrent networks that the program runs step by step,
// with the same short chain of ops for each position of a sequence.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// A shorter sequence is not worth another implementation, and up to seven equal
// chains may be layers.
inline constexpr int64_t kLeastRepeats = 8;

// A loop over a sequence, in one steady step.
struct Recurrence {
  size_t step = 0;        // index into Steps::windows
  std::string cell = {};  // "aten::lstm_cell", or "addmm > addmm > add > tanh"
  bool named = false;     // found by an op that is a cell, not by its chain
  bool sized = true;      // false if found by the names of its ops alone
  int64_t repeats = 0;
  Span forward = {};              // on the training thread
  std::vector<RowId> ops = {};    // of the cell, outermost calls, in time order
  std::vector<RowId> nodes = {};  // their autograd nodes, in order of the ops
  // The matrix products of the cell and of its nodes.
  std::vector<RowId> products = {};
  // Another op that computes between the cells, such as attention or the next
  // input; empty if there is none.
  std::string foreign = {};
  // True if the next cell's input is made between the cells from their state:
  // by attention with the state as query, or by layers, as in a world model. No
  // input is then known before the loop. Detected only for named cells.
  bool needs_state = false;
};

// A written-out cell counts only if the recording proves that each repeat needs
// the one before it. Shapes must show a square product (or, for gates, one of 3
// or 4 times the width) whose result is added to the input and goes through
// tanh or sigmoid. The backward pass must accumulate the gradients of its
// weights once for all repeats. Without recorded sizes, the chain must be
// written like an LSTM's or GRU's cell: products, and sigmoids and tanh whose
// results are multiplied. aten::lstm, aten::gru and the like are one op,
// whatever runs inside.
std::vector<Recurrence> FindRecurrences(const AnalysisContext& context);

}  // namespace stepscope
