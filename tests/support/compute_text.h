// ComputeText: makes an event list (support/trace_text.h) of steps whose ops
// launch kernels. The host is ahead of the GPU unless an op is longer than its
// kernels. Durations are in us.
#pragma once

#include <stepscope/analysis.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/trace_text.h"

namespace stepscope {

struct KernelLine {
  std::string name;
  double us = 100;
  std::string fields = {};  // "grid=1,1,1 blocks_per_sm=0.5"
};

class ComputeText {
 public:
  explicit ComputeText(std::string device = "NVIDIA A100-SXM4-80GB",
                       int major = 8, int minor = 0) {
    Line("device ordinal=0 compute_major=" + std::to_string(major) +
         " compute_minor=" + std::to_string(minor) +
         " memory_bytes=85899345920 " + device);
  }

  void Line(const std::string& line) { text_ += line + "\n"; }
  void Pass(double us) { now_ += Ns(us); }

  // Adds an op that takes `us` on the host and launches `kernels`. `inputs` has
  // the form "(float[32,64],float[64,64])".
  void Op(std::string_view name, const std::string& inputs,
          const std::vector<KernelLine>& kernels, double us = 10,
          const std::string& fields = "") {
    Begin();
    for (const KernelLine& kernel : kernels) Launch(kernel);
    End(name, inputs, us, fields);
  }
  // For ops around other ops: Begin() ... End().
  void Begin() { open_.push_back(now_); }
  void End(std::string_view name, const std::string& inputs = "", double us = 0,
           const std::string& fields = "") {
    const int64_t begin = open_.back();
    open_.pop_back();
    now_ = std::max(now_, begin + Ns(us));
    Line("op " + At(begin, now_) + " thread=0 " + fields +
         (inputs.empty() ? "" : " inputs=" + inputs) + " " + std::string(name));
  }
  void EndRange(std::string_view name, const std::string& kind) {
    Line("range " + At(open_.back(), now_) + " thread=0 kind=" + kind + " " +
         std::string(name));
    open_.pop_back();
  }
  void Call(std::string_view name, double us) {
    Line("runtime_call " + At(now_, now_ + Ns(us)) + " thread=0 correlation=" +
         std::to_string(++correlation_) + " " + std::string(name));
    now_ += Ns(us);
  }
  void Launch(const KernelLine& kernel) {
    const int64_t call = now_;
    Call("cudaLaunchKernel", 2);
    const int64_t begin = std::max(call + Ns(3), free_);
    free_ = begin + Ns(kernel.us);
    Line("kernel " + At(begin, free_) +
         " stream=7 correlation=" + std::to_string(correlation_) + " " +
         kernel.fields + " " + kernel.name);
  }
  // Adds a launch that returns when its kernel has finished.
  void BlockingLaunch(const KernelLine& kernel) {
    const int64_t begin = std::max(now_ + Ns(3), free_);
    free_ = begin + Ns(kernel.us);
    const int64_t end = free_ + Ns(1);
    Line("runtime_call " + At(now_, end) + " thread=0 correlation=" +
         std::to_string(++correlation_) + " cudaLaunchKernel");
    Line("kernel " + At(begin, free_) + " stream=7 correlation=" +
         std::to_string(correlation_) + " " + kernel.name);
    now_ = end;
  }
  void EndStep() {
    Line("step " + At(step_begin_, now_) +
         " thread=0 number=" + std::to_string(step_++));
    step_begin_ = now_;
  }
  int64_t now_ns() const { return now_; }

  const std::string& text() const { return text_; }
  Report Analyzed() const { return Analyze(TraceFromText(text_)); }

 private:
  static int64_t Ns(double us) { return static_cast<int64_t>(us * 1000); }
  static std::string At(int64_t begin, int64_t end) {
    return std::to_string(begin) + ".." + std::to_string(end);
  }

  std::string text_;
  std::vector<int64_t> open_;
  int64_t now_ = 0, step_begin_ = 0, free_ = 0, correlation_ = 0, step_ = 0;
};

}  // namespace stepscope
