// FindOpLoops(): loops of the program that call ops for one element at a time
// although one call could work on all elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Fewer passes cost little, and models rarely have this many equal layers
// without weights.
inline constexpr int64_t kLeastPasses = 16;

// One loop in one steady step.
struct OpLoop {
  size_t step = 0;         // index into Steps::windows
  std::string chain = {};  // one pass: "aten::eq > aten::is_nonzero"
  int64_t passes = 0;
  Span forward = {};          // on the training thread
  bool reads_values = false;  // a pass reads a tensor's value, as .item() does
  // Sizes are unknown, but each pass uploads something and waits for a result,
  // as calls of a policy for one environment do.
  bool round_trips = false;
  bool has_products = false;
  // The only products are attention over one window or sequence per pass.
  bool attends = false;
  bool has_backward = false;
  // The number of consecutive loops in which each pass picks the element before
  // that of the previous pass; 0 if passes do not run backwards. Nobody goes
  // backwards over independent elements, so each pass needs the previous one,
  // as in discounted returns.
  int64_t scans = 0;
  double ns = 0;      // of the loop and of its backward pass
  double events = 0;  // its ops, including inner ones
  // The part of `ns` that is computing, beyond the cost of calling the ops, and
  // that a single call for all passes would also do.
  double computing_ns = 0;
};

// Finds chains of outermost forward ops that repeat at least kLeastPasses times
// without other ops between (or as often in several loops of at least four
// passes), outside the optimizer and the data loader. Each
// pass must pick an element of a tensor, read a value, multiply one row or
// sample (without sizes: upload something and wait for a result), or attend
// without any other product (layers have weights between); or the passes add up
// the elements of a tensor that was taken apart right before. Stacks of layers
// do not count: chains whose matrix products or convolutions have several rows
// or samples, and chains whose passes have weights of their own, as the
// backward pass shows.
std::vector<OpLoop> FindOpLoops(const AnalysisContext& context);

}  // namespace stepscope
