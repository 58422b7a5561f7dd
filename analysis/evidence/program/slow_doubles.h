// Layers that take more than twice the time in double precision on a CPU,
// because oneDNN has them in 32 and 16 bits only: convolutions, for which a
// plain loop runs, and LSTMs, for which each time step calls ops of its own.
// Source: ATen's use_mkldnn() conditions (Convolution.cpp, RNN.cpp).
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// True if the op takes a tensor of doubles. Weights to draw by are summed up,
// and with more than 2^24 of them float32 loses some: aten::multinomial does
// not count.
bool TakesDoubles(const Trace& trace, RowId op);

// The outermost convolution in double precision around `op`, forward or
// backward, which may be `op` itself; else kNone.
RowId DoubleConvolutionAround(const Trace& trace, RowId op);

// LSTM layers in double precision with their backward passes.
struct DoubleLstms {
  std::vector<Span> spans;  // on the training thread, merged
  // Per steady step.
  double ns = 0;
  double events = 0;  // ops inside
  double flops = 0;   // of their products
};
DoubleLstms FindDoubleLstms(const AnalysisContext& context);

}  // namespace stepscope
