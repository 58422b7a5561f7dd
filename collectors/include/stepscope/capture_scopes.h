// CaptureScopes: tells where in the program a node of a CUDA graph is captured.
// A replay runs the node's kernel without the operators that launched it. Those
// operators must therefore be remembered from the capture, which may lie long
// before any window.
//
// The collector that is told of captures (cupti/) calls it. The collector that
// knows operators (torch/) implements it.
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

  // Between Begin() and End() it tracks which operators are open, which costs
  // time for each operator of the process. Calls do not nest: a second Begin()
  // does nothing.
  virtual void Begin() = 0;
  virtual void End() = 0;

  // Returns what is open on the calling thread. Called inside a CUDA call, so
  // it must not wait for a lock, such as the interpreter's, that another thread
  // may hold while it calls CUDA.
  virtual CapturedAt Here() const = 0;
};

}  // namespace stepscope
