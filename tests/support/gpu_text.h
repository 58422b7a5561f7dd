// GpuText: makes a GPU run from the host's calls. The device's rows follow from
// the calls. The result is a text in the form of support/trace_text.h. All
// durations are in us.
#pragma once

#include <stepscope/analysis.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/trace_text.h"

namespace stepscope {

class GpuText {
 public:
  GpuText() : free_(64) {}

  // The host is busy outside ops, or idle.
  void Pass(double us) { now_ += Ns(us); }
  void OnThread(int thread) { thread_ = thread; }
  void OnStream(int stream) { stream_ = stream; }

  // Ops and ranges nest. `fields` are as in trace_text.h.
  void Begin(std::string_view kind, std::string_view name,
             std::string_view fields = "") {
    open_.push_back(
        {now_, std::string(kind), std::string(name), std::string(fields)});
  }
  void End() {
    const Open row = open_.back();
    open_.pop_back();
    Row(row.kind, row.begin, now_,
        " thread=" + std::to_string(thread_) + " " + row.fields, row.name);
  }
  void Op(double us, std::string_view name, std::string_view fields = "") {
    Begin("op", name, fields);
    Pass(us);
    End();
  }
  void Range(double us, std::string_view name, std::string_view fields = "") {
    Begin("range", name, fields);
    Pass(us);
    End();
  }
  void Call(double us, std::string_view name) {
    Row("runtime_call", now_, now_ + Ns(us),
        " thread=" + std::to_string(thread_), name);
    now_ += Ns(us);
  }

  void Kernel(double us, std::string_view name,
              std::string_view call = "cudaLaunchKernel") {
    const int64_t begin = Launch(call);
    Device("kernel", begin, us, "", name);
  }
  // Adds a copy whose call returns at once.
  void Copy(double us, std::string_view from, std::string_view to,
            int64_t bytes) {
    const int64_t begin = Launch("cudaMemcpyAsync");
    Device("copy", begin, us, Kinds(from, to, bytes), "Memcpy");
  }
  // Adds a copy whose call returns when the copy is done. `before_us`: the
  // least time from the start of the call to that of the copy.
  void BlockingCopy(double us, std::string_view from, std::string_view to,
                    int64_t bytes, double before_us = 5) {
    const int64_t begin = std::max(now_ + Ns(before_us), free_[stream_]);
    const int64_t call = now_;
    ++correlation_;
    Device("copy", begin, us, Kinds(from, to, bytes), "Memcpy");
    now_ = free_[stream_] + Ns(2);
    Row("runtime_call", call, now_, HostFields(), "cudaMemcpyAsync");
  }
  void Synchronize(std::string_view name = "cudaStreamSynchronize") {
    const int64_t call = now_;
    ++correlation_;
    now_ = std::max(now_, *std::ranges::max_element(free_)) + Ns(2);
    Row("runtime_call", call, now_, HostFields(), name);
  }
  // tensor.item(): the copy call waits (torch 1), or a copy into pinned memory
  // and then a synchronisation waits (torch 2).
  void Item(bool pinned = false) {
    Begin("op", "aten::item");
    Pass(1);
    Begin("op", "aten::_local_scalar_dense");
    if (pinned) {
      Copy(2, "device", "pinned", 8);
      Synchronize();
    } else {
      BlockingCopy(2, "device", "pageable", 8);
    }
    End();
    Pass(1);
    End();
  }

  // Ends the step that started with the run or at the last EndStep().
  void EndStep() {
    Row("step", step_begin_, now_, " thread=0 number=" + std::to_string(step_),
        "");
    ++step_;
    step_begin_ = now_;
  }
  void Line(std::string_view line) { text_ += std::string(line) + "\n"; }
  int64_t now_ns() const { return now_; }

  Trace Build() const { return TraceFromText(text_); }
  Report Analyzed() const { return Analyze(Build()); }

 private:
  struct Open {
    int64_t begin;
    std::string kind, name, fields;
  };

  static int64_t Ns(double us) { return static_cast<int64_t>(us * 1000); }
  static std::string Kinds(std::string_view from, std::string_view to,
                           int64_t bytes) {
    return " source=" + std::string(from) + " destination=" + std::string(to) +
           (bytes > 0 ? " bytes=" + std::to_string(bytes) : "");
  }
  std::string HostFields() const {
    return " thread=" + std::to_string(thread_) +
           " correlation=" + std::to_string(correlation_);
  }
  // Adds a call of 5 us and returns the earliest time at which its work can
  // start.
  int64_t Launch(std::string_view call) {
    ++correlation_;
    Row("runtime_call", now_, now_ + Ns(5), HostFields(), call);
    now_ += Ns(5);
    return std::max(now_, free_[stream_]);
  }
  void Device(std::string_view kind, int64_t begin, double us,
              const std::string& fields, std::string_view name) {
    free_[stream_] = begin + Ns(us);
    Row(kind, begin, free_[stream_],
        " stream=" + std::to_string(stream_) +
            " correlation=" + std::to_string(correlation_) + fields,
        name);
  }
  void Row(std::string_view kind, int64_t begin, int64_t end,
           const std::string& fields, std::string_view name) {
    text_ += std::string(kind) + " " + std::to_string(begin) + ".." +
             std::to_string(end) + fields;
    if (!name.empty()) text_ += " " + std::string(name);
    text_ += "\n";
  }

  std::string text_;
  std::vector<int64_t> free_;  // per stream: end of its last work
  std::vector<Open> open_;
  int64_t now_ = 0, step_begin_ = 0;
  int64_t correlation_ = 0, step_ = 0;
  int thread_ = 0, stream_ = 7;
};

// Steps on an A100 that upload a batch from pageable memory and then compute.
inline Trace PageableUploads() {
  GpuText run;
  run.Line("device vendor=Nvidia compute_major=8 NVIDIA A100");
  for (int step = 0; step < 40; ++step) {
    run.Begin("op", "aten::copy_");
    run.BlockingCopy(4000, "pageable", "device", 20'000'000);
    run.End();
    run.Kernel(4000, "gemm");
    run.Pass(100);
    run.EndStep();
  }
  return run.Build();
}

}  // namespace stepscope
