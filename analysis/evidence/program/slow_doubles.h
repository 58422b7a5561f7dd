// Layers that take more than twice as long in double precision on a CPU,
// because oneDNN supports them in 32 and 16 bits only: convolutions, which then
// run in a plain loop, and LSTMs, which then call ops for each time step.
// Also finds LSTMs for other rules. Source: ATen's use_mkldnn() conditions
// (Convolution.cpp, RNN.cpp).
#pragma once

#include <stepscope/trace.h>

#include <functional>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// True if the op takes a tensor of doubles. aten::multinomial does not count:
// it sums up the weights to draw by, and with more than 2^24 weights float32
// loses some of them.
bool TakesDoubles(const Trace& trace, RowId op);

// Returns the outermost convolution in double precision, forward or backward,
// around `op` (possibly `op` itself); kNone if there is none.
RowId DoubleConvolutionAround(const Trace& trace, RowId op);

// Calls of aten::lstm on the training thread, with their backward passes.
struct LstmLayers {
  std::vector<RowId> calls;  // of aten::lstm, in steady steps
  std::vector<Span> spans;   // on the training thread, merged
  // Per steady step.
  double ns = 0;
  double events = 0;  // ops inside the spans
  double flops = 0;   // of their products, if sizes were recorded
};

// Takes only calls for which `counts` returns true.
LstmLayers FindLstmLayers(const AnalysisContext& context,
                          const std::function<bool(RowId)>& counts);

// The same for LSTM layers in double precision.
LstmLayers FindDoubleLstms(const AnalysisContext& context);

}  // namespace stepscope
