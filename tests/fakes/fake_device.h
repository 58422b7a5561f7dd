// FakeDevice: simulates the activity of an A100 for each operator that a
// program runs. It queues in a FakeCupti the records that a GPU would leave
// (op_work.h): runtime calls inside the operator; kernels, copies and memsets
// one after the other on one stream; copies to the device on a second stream,
// with an event between the streams; and waits.
//
// Any thread may call it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "fakes/fake_cupti.h"
#include "fakes/op_work.h"

namespace stepscope {

class FakeDevice {
 public:
  struct Op {
    std::string_view name;
    uint64_t begin_ns = 0;  // on FakeCupti's clock
    uint64_t end_ns = 0;
    uint32_t pid = 0;
    uint32_t tid = 0;
    int64_t bytes = 0;  // of its first tensor
  };

  explicit FakeDevice(FakeCupti& cupti) : cupti_(cupti) {}

  // Returns when the host continues: later than `end_ns` for operators that
  // wait.
  uint64_t Run(const Op& op);

  // The allocator took (bytes > 0) or released a segment inside an operator.
  void Segment(const Op& op, uint64_t address, int64_t bytes);

 private:
  // Numbers of the calls in CUPTI's runtime API.
  enum Call : uint32_t {
    kMalloc = 20,
    kFree = 22,
    kCopyAsync = 41,
    kMemsetAsync = 51,
    kStreamSynchronize = 131,
    kEventRecord = 135,
    kStreamWaitEvent = 147,
    kLaunchKernel = 211
  };
  static constexpr uint32_t kStream = 7;
  static constexpr uint32_t kCopyStream = 13;

  void Introduce();
  uint32_t Made(Call call, const Op& op, uint64_t begin, uint64_t end);
  uint64_t Do(const OpWork& work, const Op& op, uint64_t call_begin,
              uint64_t call_end);
  void Kernel(const OpWork& work, const Op& op, uint32_t correlation,
              uint64_t begin, uint64_t end);
  uint64_t CopyToDevice(const Op& op, uint64_t call_begin, uint64_t call_end);
  uint64_t CopyToHost(const Op& op, uint64_t call_begin, uint64_t call_end);
  void Sample(uint64_t now);

  FakeCupti& cupti_;
  std::mutex mutex_;
  uint32_t correlation_ = 100;
  uint64_t free_at_ = 0;      // when the stream has finished
  uint64_t copies_done_ = 0;  // when the copy stream has finished
  uint64_t sampled_at_ = 0;
  uint64_t introduced_ = 0;  // number of windows with device and stream records
};

}  // namespace stepscope
