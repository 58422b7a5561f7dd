// CapturedWork: device work that is captured once and replayed.
#pragma once

namespace resnet {

// Work between Begin() and End() is not executed but captured. Each Replay()
// executes it. Methods may throw c10::Error.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void Begin() = 0;
  virtual void End() = 0;
  virtual void Replay() = 0;
};

}  // namespace resnet
