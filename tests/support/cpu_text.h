// Writes CPU-only training as trace text: one thread, and ops one after the
// other.
#pragma once

#include <stepscope/analysis.h>

#include <cstdint>
#include <string>

#include "support/trace_text.h"

namespace stepscope {

class CpuText {
 public:
  explicit CpuText(std::string head = "") : text_(std::move(head)) {}

  // `rest` has fields and the name: "inputs=(float[4,4]) aten::add_".
  void Op(const std::string& rest, int64_t us, int64_t gap_us = 0) {
    Line("op", now_us_, now_us_ + us, rest);
    now_us_ += us + gap_us;
  }
  // Adds an op that starts together with the next one, which is around it.
  void Inside(const std::string& rest, int64_t us) {
    Line("op", now_us_, now_us_ + us, rest);
  }
  // Adds an op around one other op, which starts at the same time.
  void Nested(const std::string& outer, int64_t outer_us,
              const std::string& inner, int64_t inner_us) {
    Line("op", now_us_, now_us_ + outer_us, outer);
    Line("op", now_us_, now_us_ + inner_us, inner);
    now_us_ += outer_us;
  }
  // Adds an op around two other ops that run one after the other.
  void Nested(const std::string& outer, int64_t outer_us,
              const std::string& inner, int64_t inner_us,
              const std::string& second, int64_t second_us) {
    Line("op", now_us_ + inner_us, now_us_ + inner_us + second_us, second);
    Nested(outer, outer_us, inner, inner_us);
  }
  void Pass(int64_t us) { now_us_ += us; }  // in own code
  void Begin() { range_us_ = now_us_; }
  void EndRange(const std::string& rest) {
    Line("range", range_us_, now_us_, rest);
  }
  void EndStep() {
    Line("step", step_us_, now_us_, "number=" + std::to_string(step_++));
    step_us_ = now_us_;
  }
  Trace Recorded() const { return TraceFromText(text_); }
  Report Analyzed() const { return Analyze(Recorded()); }

 private:
  void Line(const std::string& kind, int64_t begin_us, int64_t end_us,
            const std::string& rest) {
    text_ += kind + " " + std::to_string(begin_us) + "000.." +
             std::to_string(end_us) + "000 thread=0 " + rest + "\n";
  }

  std::string text_;
  int64_t now_us_ = 1, step_us_ = 1, range_us_ = 1;
  int step_ = 0;
};

}  // namespace stepscope
