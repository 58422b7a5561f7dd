// The part of libfakecupti_ops.so that watches LibTorch. It reports every
// operator to a FakeDevice. A caching allocator returns addresses without
// memory and reports the memory that it would have taken. See tests/README.md.
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <stepscope/clock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "fakes/fake_device.h"

extern "C" stepscope::FakeCupti* FakeCuptiInLibrary();

namespace stepscope {
namespace {

constexpr int64_t kSegmentBytes = int64_t{20} << 20;
constexpr size_t kBlocksHeld = 64;
const c10::Device kDevice(c10::DeviceType::CUDA, 0);

// Releases blocks in the order of allocation.
class FakeAllocator : public c10::DeviceAllocator {
 public:
  void Take(FakeDevice& device, const FakeDevice::Op& op) {
    if (op.bytes <= 0) return;
    const std::lock_guard lock(mutex_);
    if (allocated_ + op.bytes > reserved_) {
      const int64_t segment = std::max(kSegmentBytes, op.bytes);
      device.Segment(op, next_address_, segment);
      reserved_ += segment;
      ++segments_;
    }
    blocks_.push_back({next_address_, op.bytes});
    Report(next_address_, op.bytes);
    next_address_ += static_cast<uint64_t>(op.bytes + 511) / 512 * 512;
    if (blocks_.size() <= kBlocksHeld) return;
    const Block oldest = blocks_.front();
    blocks_.pop_front();
    Report(oldest.address, -oldest.bytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    TORCH_CHECK(device == 0, "Invalid device argument");
    const std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = allocated_;
    stats.reserved_bytes[0].current = reserved_;
    stats.segment[0].current = segments_;
    stats.num_device_alloc = segments_;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  c10::DataPtr allocate(size_t) override {
    TORCH_CHECK(false, "there is no device: this allocator is a fake");
  }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  struct Block {
    uint64_t address;
    int64_t bytes;
  };
  void Report(uint64_t address, int64_t bytes) {
    allocated_ += bytes;
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void*>(address), bytes,
                                     static_cast<size_t>(allocated_),
                                     static_cast<size_t>(reserved_), kDevice);
  }

  std::mutex mutex_;
  std::deque<Block> blocks_;
  uint64_t next_address_ = uint64_t{0x7f} << 40;
  int64_t allocated_ = 0;
  int64_t reserved_ = 0;
  int64_t segments_ = 0;
};

// Never destroyed, because operators may run until the process ends.
FakeDevice& TheDevice() {
  static FakeDevice* const device = new FakeDevice(*FakeCuptiInLibrary());
  return *device;
}
FakeAllocator& TheAllocator() {
  static FakeAllocator* const allocator = new FakeAllocator;
  return *allocator;
}

// FakeCupti uses our clock.
uint64_t Now() { return static_cast<uint64_t>(NowNs()); }

struct Begun : at::ObserverContext {
  uint64_t begin_ns = 0;
  int64_t bytes = 0;
};

int64_t BytesOf(const at::RecordFunction& function) {
  for (const c10::IValue& input : function.inputs()) {
    if (input.isTensor() && input.toTensor().defined()) {
      return static_cast<int64_t>(input.toTensor().nbytes());
    }
  }
  return 0;
}

std::unique_ptr<at::ObserverContext> OnBegin(
    const at::RecordFunction& function) {
  if (WorkOf(function.name()).empty()) return nullptr;
  auto begun = std::make_unique<Begun>();
  begun->bytes = BytesOf(function);
  begun->begin_ns = Now();
  return begun;
}

void OnEnd(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* begun = static_cast<Begun*>(context);
  FakeDevice::Op op;
  op.name = function.name();
  op.begin_ns = begun->begin_ns;
  op.end_ns = Now();
  op.pid = static_cast<uint32_t>(getpid());
  op.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  op.bytes = begun->bytes;
  TheAllocator().Take(TheDevice(), op);
  const uint64_t until = TheDevice().Run(op);
  if (until > op.end_ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(until - op.end_ns));
  }
}

}  // namespace
}  // namespace stepscope

// Runs at the first subscription: by then LibTorch is initialised, and the
// subscribing thread runs no operator.
extern "C" void FakeDeviceBegin() {
  using namespace stepscope;
  static const bool begun = [] {
    c10::SetAllocator(c10::DeviceType::CUDA, &TheAllocator());
    at::addGlobalCallback(at::RecordFunctionCallback(&OnBegin, &OnEnd)
                              .needsInputs(true)
                              .scopes({at::RecordScope::FUNCTION}));
    return true;
  }();
  (void)begun;
}
