// FindOpLoops(): loops of the program that call ops for one element at a time,
// where one call could work on all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Models rarely have as many equal layers without weights, and fewer passes
// cost little.
inline constexpr int64_t kLeastPasses = 16;

// One loop, in one steady step.
struct OpLoop {
  size_t step = 0;         // index into Steps::windows
  std::string chain = {};  // "aten::eq > aten::is_nonzero", of one pass
  int64_t passes = 0;
  Span forward = {};          // on the training thread
  bool reads_values = false;  // a pass reads a tensor's value, as .item() does
  bool has_products = false;
  bool has_backward = false;
  // If each pass picks the element before that of the pass before it, the
  // number of such loops that follow each other here. Nobody goes backwards
  // over independent elements: each pass needs the one before it, as in
  // discounted returns.
  int64_t scans = 0;
  double ns = 0;      // of the loop and of its backward pass
  double events = 0;  // its ops, inner ones as well
  // The part of `ns` that is computing, beyond what calling the ops costs, and
  // that one call for all passes would do as well.
  double computing_ns = 0;
};

// A chain of outermost forward ops that repeats at least kLeastPasses times
// without anything between, outside the optimizer and the data loader, and
// whose passes each pick an element of a tensor, read a value, or multiply one
// row or sample, or add up the elements of a tensor that was taken apart right
// before. It is a stack of layers, and does not count, if its matrix products
// or convolutions have several rows or samples, or if the backward pass shows
// that the passes have weights of their own.
std::vector<OpLoop> FindOpLoops(const AnalysisContext& context);

}  // namespace stepscope
