// FindRecurrences(): recurrent networks that the program runs step by step, as
// the same short chain of ops for each position of a sequence.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// A shorter sequence is not worth another implementation, and seven equal
// chains may be seven layers.
inline constexpr int64_t kLeastRepeats = 8;

// One loop over a sequence, in one steady step.
struct Recurrence {
  size_t step = 0;        // index into Steps::windows
  std::string cell = {};  // "aten::lstm_cell", or "addmm > addmm > add > tanh"
  bool named = false;     // by an op that is a cell; else by its chain
  int64_t repeats = 0;
  Span forward = {};              // on the training thread
  std::vector<RowId> ops = {};    // of the cell, outermost calls, in time order
  std::vector<RowId> nodes = {};  // their autograd nodes, in order of the ops
  // The matrix products of the cell and of its nodes.
  std::vector<RowId> products = {};
  // Other ops that compute between the cells, such as attention or the next
  // input; empty if there are none.
  std::string foreign = {};
  // What the next cell reads is made between the cells from their state: by
  // attention, whose query it is, or by layers, as in a world model. So no
  // input is known before the loop. Only known of named cells.
  bool needs_state = false;
};

// A cell that is written out counts only where the recording proves that each
// repeat needs the one before it: shapes show a square product (or one of 3 or
// 4 times the width, for gates) whose result is added to the input and goes
// through tanh or sigmoid, and the backward pass accumulates its weights'
// gradients once for all repeats. aten::lstm, aten::gru and the like are one
// op, whatever runs below them.
std::vector<Recurrence> FindRecurrences(const AnalysisContext& context);

}  // namespace stepscope
