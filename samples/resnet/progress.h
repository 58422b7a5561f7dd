// Progress: tells the user on stderr how training goes. On a terminal one bar
// that is drawn over; elsewhere one plain line for each look at the loss. The
// bar leaves the cursor at its beginning, so that what others print meanwhile
// covers it and stays whole.
// For one thread.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

namespace resnet {

class Progress {
 public:
  // `out` stays the caller's. REQUIRES: total > 0.
  Progress(std::FILE* out, bool terminal, int total, int batch)
      : out_(out), terminal_(terminal), total_(total), batch_(batch) {}

  // Step number `done` (from 1) took `step_ms`; `loss` where it was read. A
  // loss that is not a number, or infinite, is said once, in words.
  void Step(int done, double step_ms, std::optional<double> loss);
  // Any line of text, kept apart from the bar.
  void Say(const std::string& line);
  // Leaves the bar behind. To be called before others print.
  void Finish();

 private:
  std::string Bar(int done) const;

  std::FILE* out_;
  bool terminal_;
  int total_;
  int batch_;
  std::optional<double> loss_;
  bool said_bad_loss_ = false;
  bool drawn_ = false;
};

}  // namespace resnet
