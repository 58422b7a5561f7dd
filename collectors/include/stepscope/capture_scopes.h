// CaptureScopes: where in the program a node of a CUDA graph is captured. A
// replay runs the node's kernel without the operators that launched it, so they
// have to be kept from the capture, which may lie long before any window.
//
// The collector that hears of captures (cupti/) asks; the one that knows
// operators (torch/) answers.
#pragma once

#include <string>
#include <vector>

namespace stepscope {

struct CapturedAt {
  std::vector<std::string> ops;  // open at that moment, innermost first
  std::string module;  // the path of the innermost module ("layer1.0.conv1");
                       // "" if unknown

  bool empty() const { return ops.empty() && module.empty(); }
};

// Any thread may call it.
class CaptureScopes {
 public:
  virtual ~CaptureScopes() = default;

  // From Begin() to End() it keeps which operators are open, at a cost for each
  // operator of the process. Calls do not nest: a second Begin() does nothing.
  virtual void Begin() = 0;
  virtual void End() = 0;

  // What is open on the calling thread. Called inside a CUDA call, so it waits
  // for no lock that another thread may hold while it calls CUDA; the
  // interpreter's is one.
  virtual CapturedAt Here() const = 0;
};

}  // namespace stepscope
