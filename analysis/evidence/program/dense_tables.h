// FindDenseTables(): embedding tables whose gradient is as large as the table,
// however few rows a step looks up.
#pragma once

#include <functional>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"

namespace stepscope {

// The tables of one size. Numbers are per steady step.
struct DenseTable {
  TensorShape table;       // [rows, width]
  double count = 0;        // of tables of this size with a gradient
  double lookups = 0;      // in all of them; bounds the rows with a gradient
  RowId backward = kNone;  // the op that made the first gradient
};

struct DenseTables {
  std::vector<DenseTable> tables = {};  // largest first
  // backward: the ops that fill and write the gradients. update: those that add
  // up, copy and reduce gradients, and update the tables. The share left of
  // each op is its work on other tensors.
  std::vector<ShortenedOp> backward = {}, update = {};
  // Per steady step: the tables' share of the time between the ops of
  // Optimizer.zero_grad, which frees the gradients. 0 on a run with a GPU.
  double free_ns = 0;
  // True if all-reduces in `update` add the gradients of other ranks. Per
  // steady step, computation hides `hidden_ns` of the part that is saved.
  bool reduced = false;
  double hidden_ns = 0;
};

// Finds the tables that `accept` accepts, by size and by numbers per step.
// Leaves out tables that another layer also uses (a tied output layer), because
// their gradient is dense in any case, and tables for which PyTorch makes no
// sparse gradients (scale_grad_by_freq, bags by maximum). Empty if no sizes of
// tables were recorded.
DenseTables FindDenseTables(
    const AnalysisContext& context,
    const std::function<bool(const DenseTable&)>& accept);

// The same for CPU-only recordings without sizes, told by time: filling the
// gradient with zeros takes half as long as adding the rows that were looked
// up, or longer. Leaves `tables` empty. Assumes that the tables are the
// parameters whose updates take longest. Empty if the engine adds up gradients
// that may be of tied tables.
struct UnsizedTables {
  DenseTables found = {};
  double count = 0;  // of such gradients per steady step
};
UnsizedTables FindUnsizedTables(const AnalysisContext& context);

}  // namespace stepscope
