// Event lists of data-parallel training for tests: steps of 100 ms with one
// forward and one backward pass, whose AccumulateGrad nodes issue all-reduces
// on a separate stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct Bucket {
  int64_t issue_us = 0;  // when the host issues it, from the step's start
  int64_t begin_us = 0;  // start of its kernel
  int64_t end_us = 0;
  int64_t elements = -1;  // floats; -1: no metadata
};

struct DdpText {
  std::vector<Bucket> buckets = {};
  // Compute kernels, from the step's start, launched one after the other.
  std::vector<std::pair<int64_t, int64_t>> compute_us = {{5'000, 90'000}};
  int steps = 3;
  int passes = 1;  // backward passes per step, `pass_us` apart
  int64_t pass_us = 50'000;
  int parameters = 10;  // without collectives
  int world_size = 2;
  std::string dtype = "Float";
  bool in_hooks = true;   // false: issued by a loop after backward
  std::string more = {};  // additional rows
};

inline std::string ToRows(const DdpText& text) {
  std::string rows = "run world_size=" + std::to_string(text.world_size) + "\n";
  int64_t correlation = 1;
  const auto span = [](int64_t begin_us, int64_t end_us) {
    return std::to_string(begin_us * 1000) + ".." +
           std::to_string(end_us * 1000);
  };
  const auto launch = [&](int64_t us, int thread) {
    rows +=
        "runtime_call " + std::to_string(us * 1000 + 100) + ".." +
        std::to_string(us * 1000 + 900) + " thread=" + std::to_string(thread) +
        " correlation=" + std::to_string(correlation) + " cudaLaunchKernel\n";
    return " correlation=" + std::to_string(correlation++);
  };
  const int backward_thread = text.in_hooks ? 1 : 0;
  const std::string on = " thread=" + std::to_string(backward_thread) + " ";
  for (int step = 0; step < text.steps; ++step) {
    const int64_t base = step * 100'000;
    rows += "step " + span(base, base + 100'000) +
            " thread=0 number=" + std::to_string(step) + "\n";
    for (size_t i = 0; i < text.compute_us.size(); ++i) {
      const auto& [begin, end] = text.compute_us[i];
      rows += "kernel " + span(base + begin, base + end) + " stream=7" +
              launch(base + 1'000 + static_cast<int64_t>(i) * 10, 0) +
              " gemm\n";
    }
    for (int pass = 0; pass < text.passes; ++pass) {
      const int64_t at = base + pass * text.pass_us;
      rows += "op " + span(at + 500, at + 600) + " thread=0 aten::mm\n";
      for (int i = 0; i < text.parameters; ++i) {
        rows += "op " + span(at + 3'000 + 2 * i, at + 3'001 + 2 * i) + on +
                "kind=backward autograd::engine::evaluate_function: "
                "torch::autograd::AccumulateGrad\n";
      }
      for (const Bucket& bucket : text.buckets) {
        const int64_t issue = at + bucket.issue_us;
        if (text.in_hooks) {
          rows += "op " + span(issue - 1, issue + 21) + on +
                  "kind=backward autograd::engine::evaluate_function: "
                  "torch::autograd::AccumulateGrad\n";
        }
        rows += "op " + span(issue, issue + 20) + on + "c10d::allreduce_\n";
        rows +=
            "op " + span(issue + 1, issue + 19) + on + "record_param_comms\n";
        if (bucket.elements >= 0) {
          rows += "communication " + span(issue + 1, issue + 19) + on +
                  "in_elements=" + std::to_string(bucket.elements) +
                  " dtype=" + text.dtype +
                  " group_size=" + std::to_string(text.world_size) +
                  " allreduce\n";
        }
        rows += "kernel " + span(at + bucket.begin_us, at + bucket.end_us) +
                " stream=20" + launch(issue + 5, backward_thread) +
                " ncclDevKernel_AllReduce_Sum_f32_RING_LL\n";
      }
    }
  }
  return rows + text.more;
}

}  // namespace stepscope
