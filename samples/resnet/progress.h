// Progress: shows the user on stderr how training proceeds. On a terminal it is
// one bar that is redrawn; elsewhere one plain line each time the loss is read.
// The bar leaves the cursor at its start, so that other output overwrites the
// bar and stays readable.
// For one thread.
#pragma once

#include <cstdio>
#include <optional>
#include <string>

namespace resnet {

class Progress {
 public:
  // `out` is not closed. REQUIRES: total > 0.
  Progress(std::FILE* out, bool terminal, int total, int batch)
      : out_(out), terminal_(terminal), total_(total), batch_(batch) {}

  // Step number `done` (from 1) took `step_ms`. `loss` is set if it was read. A
  // loss that is NaN or infinite is reported once, in words.
  void Step(int done, double step_ms, std::optional<double> loss);
  // Prints a line of text, kept apart from the bar.
  void Say(const std::string& line);
  // Ends the bar. Call it before others print.
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
