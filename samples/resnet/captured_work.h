// CapturedWork: device work that is captured once and replayed.
#pragma once

namespace resnet {

// Work that is recorded between Begin() and End() instead of done, and done
// each time that Replay() is called. Methods may throw c10::Error.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void Begin() = 0;
  virtual void End() = 0;
  virtual void Replay() = 0;
};

}  // namespace resnet
