// A training loop on one GPU, simple enough to know its times by hand: a launch
// costs 5 us and reaches an idle device after 10 us, or waits while 1024
// kernels are in flight on the stream; streams run side by side without slowing
// each other. Recorded as a Trace, and timed.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace stepscope {

class GpuLoop {
 public:
  static constexpr double kCallUs = 5;
  static constexpr double kLatencyUs = 10;
  static constexpr size_t kQueue = 1024;

  // Code of the training thread between ops.
  void Host(double us) { now_us_ += us; }
  // The same, inside a range or an op.
  void Range(RangeKind kind, std::string_view name,
             const std::function<void()>& body);
  void Op(
      std::string_view name, double us,
      const std::function<void()>& body = [] {});
  void Load(double us);
  void Kernel(double us, int64_t stream = 7,
              std::string_view name = "some_kernel");
  // A pageable copy to the host, which holds the host; a copy to the device
  // that does or does not.
  void ReadBack(double us) { Transfer(us, true, false); }
  void Upload(double us, bool pinned) { Transfer(us, false, pinned); }
  // `stream` goes on when all that is on `other` now is done.
  void StreamWait(int64_t stream, int64_t other);
  void DeviceSync();
  void EndStep();

  double mean_step_us() const;
  Trace Finish();

 private:
  int64_t Call(std::string_view name, double us);
  double Start(int64_t stream, double called_us, double us);
  void Transfer(double us, bool to_host, bool pinned);
  int64_t Ns(double us) const {
    return kEpochNs + static_cast<int64_t>(us * 1000);
  }

  static constexpr int64_t kEpochNs = 1'700'000'000'000'000'000;
  TraceBuilder builder_;
  RowId thread_ = builder_.ThreadRow(1, 1);
  std::map<int64_t, double> free_us_;                // by stream
  std::map<int64_t, std::deque<double>> in_flight_;  // ends of kernels
  double now_us_ = 0;
  double step_begin_us_ = 0;
  double tiled_end_us_ = 0;
  double last_end_us_ = 0;
  int64_t correlation_ = 0;
  std::vector<double> steps_us_;
};

}  // namespace stepscope
