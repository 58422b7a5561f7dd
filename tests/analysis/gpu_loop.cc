#include "analysis/gpu_loop.h"

#include <algorithm>
#include <numeric>

namespace stepscope {

void GpuLoop::Range(RangeKind kind, std::string_view name,
                    const std::function<void()>& body) {
  const double begin_us = now_us_;
  body();
  builder_.Add(stepscope::Range{.begin_ns = Ns(begin_us),
                                .end_ns = Ns(now_us_),
                                .name = builder_.Intern(name),
                                .thread = thread_,
                                .kind = kind});
}

void GpuLoop::Op(std::string_view name, double us,
                 const std::function<void()>& body) {
  const double begin_us = now_us_;
  now_us_ += us;
  body();
  builder_.Add(stepscope::Op{.begin_ns = Ns(begin_us),
                             .end_ns = Ns(now_us_),
                             .name = builder_.Intern(name),
                             .thread = thread_});
}

void GpuLoop::Load(double us) {
  Range(RangeKind::kLoader,
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        [&] { Host(us); });
}

int64_t GpuLoop::Call(std::string_view name, double us) {
  builder_.Add(RuntimeCall{.begin_ns = Ns(now_us_),
                           .end_ns = Ns(now_us_ + us),
                           .correlation = ++correlation_,
                           .name = builder_.Intern(name),
                           .thread = thread_});
  return correlation_;
}

// When work launched now starts; the stream is taken until it ends.
double GpuLoop::Start(int64_t stream, double called_us, double us) {
  double& free_us = free_us_[stream];
  const double start_us = std::max(called_us + kLatencyUs, free_us);
  free_us = start_us + us;
  last_end_us_ = std::max(last_end_us_, free_us);
  return start_us;
}

void GpuLoop::Kernel(double us, int64_t stream, std::string_view name) {
  std::deque<double>& ends = in_flight_[stream];
  while (!ends.empty() && ends.front() <= now_us_) ends.pop_front();
  double call_us = kCallUs;
  if (ends.size() >= kQueue) {
    call_us = std::max(call_us, ends[ends.size() - kQueue] + 2 - now_us_);
  }
  const double start_us = Start(stream, now_us_ + call_us - kCallUs, us);
  ends.push_back(start_us + us);
  stepscope::Kernel kernel;
  kernel.begin_ns = Ns(start_us);
  kernel.end_ns = Ns(start_us + us);
  kernel.correlation = Call("cudaLaunchKernel", call_us);
  kernel.stream = stream;
  kernel.name = builder_.Intern(name);
  builder_.Add(kernel);
  now_us_ += call_us;
}

void GpuLoop::Transfer(double us, bool to_host, bool pinned) {
  const double start_us = Start(7, now_us_, us);
  const double end_us = start_us + us;
  const double call_us =
      pinned ? kCallUs : std::max(kCallUs, end_us + 2 - now_us_);
  Copy copy;
  copy.begin_ns = Ns(start_us);
  copy.end_ns = Ns(end_us);
  copy.correlation = Call("cudaMemcpyAsync", call_us);
  copy.stream = 7;
  const MemoryKind host = pinned ? MemoryKind::kPinned : MemoryKind::kPageable;
  copy.source = to_host ? MemoryKind::kDevice : host;
  copy.destination = to_host ? host : MemoryKind::kDevice;
  builder_.Add(copy);
  now_us_ += call_us;
}

void GpuLoop::StreamWait(int64_t stream, int64_t other) {
  for (const char* name : {"cudaEventRecord", "cudaStreamWaitEvent"}) {
    Call(name, 2);
    now_us_ += 2;
  }
  free_us_[stream] = std::max(free_us_[stream], free_us_[other]);
}

void GpuLoop::DeviceSync() {
  const double us = std::max(3.0, last_end_us_ + 3 - now_us_);
  Call("cudaDeviceSynchronize", us);
  now_us_ += us;
}

void GpuLoop::EndStep() {
  builder_.Add(Step{.begin_ns = Ns(step_begin_us_),
                    .end_ns = Ns(now_us_),
                    .number = static_cast<int64_t>(steps_us_.size()),
                    .thread = thread_});
  const double end_us = std::max({now_us_, last_end_us_, tiled_end_us_});
  steps_us_.push_back(end_us - tiled_end_us_);
  tiled_end_us_ = end_us;
  step_begin_us_ = now_us_;
}

double GpuLoop::mean_step_us() const {
  return std::accumulate(steps_us_.begin(), steps_us_.end(), 0.0) /
         steps_us_.size();
}

Trace GpuLoop::Finish() {
  for (Kind kind : {Kind::kStep, Kind::kRange, Kind::kOp, Kind::kRuntimeCall,
                    Kind::kKernel, Kind::kCopy, Kind::kMemset, Kind::kLoader}) {
    builder_.Watch(kind);
  }
  return builder_.Build();
}

}  // namespace stepscope
