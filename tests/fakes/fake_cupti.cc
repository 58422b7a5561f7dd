#include "fakes/fake_cupti.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace stepscope {
namespace {

struct NamedCall {
  uint32_t id;
  const char* name;
};
// Some of CUPTI's own names and numbers.
constexpr NamedCall kRuntimeCalls[] = {
    {1, "cudaDriverGetVersion_v3020"},
    {20, "cudaMalloc_v3020"},
    {22, "cudaFree_v3020"},
    {41, "cudaMemcpyAsync_v3020"},
    {51, "cudaMemsetAsync_v3020"},
    {90, "cudaGetDevice_v3020"},
    {131, "cudaStreamSynchronize_v3020"},
    {135, "cudaEventRecord_v3020"},
    {147, "cudaStreamWaitEvent_v3020"},
    {165, "cudaDeviceSynchronize_v3020"},
    {211, "cudaLaunchKernel_v7000"},
    {214, "cudaLaunchKernel_ptsz_v7000"},
    {271, "cudaFuncSetAttribute_v9000"},
    {311, "cudaGraphLaunch_v10000"},
    {315, "cudaStreamBeginCapture_v10000"},
    {319, "cudaStreamEndCapture_v10000"},
    {136, "cudaEventQuery_v3020"},
};
constexpr NamedCall kDriverCalls[] = {
    {18, "cuCtxGetDevice"},
    {19, "cuCtxSynchronize"},
    {79, "cuMemsetD2D16"},
    {126, "cuStreamSynchronize"},
    {190, "cuCtxGetCurrent"},
    {243, "cuMemAlloc_v2"},
    {277, "cuMemcpyHtoDAsync_v2"},
    {307, "cuLaunchKernel"},
    {497, "cuStreamEndCapture"},
    {514, "cuGraphLaunch"},
    {539, "cuStreamBeginCapture_v2"},
};
constexpr uint32_t kTakesNullBuffers = 27;  // CUDA 12.9
constexpr uint32_t kBuffersPerThread = 130000;
constexpr uint32_t kSelectsCalls = 23;      // CUDA 12.5
constexpr uint32_t kLeavesOutPolling = 26;  // CUDA 12.8
constexpr uint32_t kNotReady = 600;         // CUDA_ERROR_NOT_READY
constexpr uint8_t kJunk = 0xEE;
// A callback that takes longer than this counts as hung.
constexpr auto kPatience = std::chrono::seconds(2);

bool IsDeviceWork(uint32_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
    case CUPTI_ACTIVITY_KIND_MEMSET:
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
    case CUPTI_ACTIVITY_KIND_ENVIRONMENT:
      return true;
    default:
      return false;
  }
}

// Returns the kind of record that the domain's calls have.
uint32_t KindOfCalls(uint32_t domain) {
  return domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME
                                               : CUPTI_ACTIVITY_KIND_DRIVER;
}

template <typename Record>
Record As(const std::vector<uint8_t>& bytes) {
  Record record = {};
  std::memcpy(static_cast<void*>(&record), bytes.data(),
              std::min(bytes.size(), sizeof(record)));
  return record;
}

}  // namespace

CUptiResult FakeCupti::Enter(const char* name) {
  ++call_count_;
  calls_.emplace_back(name);
  if (fail_at_ > 0 && --fail_at_ == 0) return fail_code_;
  const auto found = fail_names_.find(name);
  return found == fail_names_.end() ? CUPTI_SUCCESS : found->second;
}

// Enters a call of the older family of activity calls.
CUptiResult FakeCupti::EnterActivity(const char* name) {
  const CUptiResult result = Enter(name);
  if (result != CUPTI_SUCCESS) return result;
  return newer_family_ ? CUPTI_ERROR_NOT_COMPATIBLE : CUPTI_SUCCESS;
}

void FakeCupti::FailCall(int n, CUptiResult code) {
  const Lock lock(mutex_);
  fail_at_ = n;
  fail_code_ = code;
}
void FakeCupti::FailAll(const std::string& name, CUptiResult code) {
  const Lock lock(mutex_);
  fail_names_[name] = code;
}
void FakeCupti::FailKind(CUpti_ActivityKind kind, CUptiResult code) {
  const Lock lock(mutex_);
  fail_kinds_[kind] = code;
}
void FakeCupti::FailNothing() {
  const Lock lock(mutex_);
  fail_at_ = 0;
  fail_names_.clear();
  fail_kinds_.clear();
}
void FakeCupti::HoldBy(const std::string& tool) {
  const Lock lock(mutex_);
  holder_ = tool;
}

void FakeCupti::UseNewerFamily(bool used) {
  const Lock lock(mutex_);
  newer_family_ = used;
}
void FakeCupti::LoseEvery(int n, bool counted) {
  const Lock lock(mutex_);
  lose_every_ = n;
  loss_counted_ = counted;
}
void FakeCupti::SetClockDrift(double share) {
  const Lock lock(mutex_);
  drift_ = share;
  drift_since_ns_ = NowNs();
}
uint64_t FakeCupti::ClockNow() const {
  const Lock lock(mutex_);
  const int64_t now = NowNs();
  const auto gained =
      static_cast<int64_t>(static_cast<double>(now - drift_since_ns_) * drift_);
  return static_cast<uint64_t>(now + offset_ns_ + (drift_ == 0 ? 0 : gained));
}

CUptiResult FakeCupti::Subscribe(CUpti_SubscriberHandle* subscriber,
                                 CUpti_CallbackFunc callback, void* user,
                                 std::string* holder) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Subscribe"); r != CUPTI_SUCCESS) return r;
  if (!holder_.empty() || subscribed_) {
    *holder = subscribed_ ? "CUPTI for stepscope" : holder_;
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  subscribed_ = true;
  callback_ = last_callback_ = callback;
  user_ = user;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(this);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Unsubscribe(CUpti_SubscriberHandle subscriber) {
  const Lock lock(mutex_);
  if (CUptiResult r = Enter("Unsubscribe"); r != CUPTI_SUCCESS) return r;
  if (!subscribed_ ||
      subscriber != reinterpret_cast<CUpti_SubscriberHandle>(this)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  subscribed_ = false;
  callback_ = nullptr;
  domains_.clear();
  callbacks_.clear();
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::GetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                       const char** name) {
  const auto find = [&](const auto& calls) {
    for (const NamedCall& call : calls) {
      if (call.id != id) continue;
      *name = call.name;
      return CUPTI_SUCCESS;
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
  };
  return domain == CUPTI_CB_DOMAIN_RUNTIME_API ? find(kRuntimeCalls)
                                               : find(kDriverCalls);
}

CUptiResult FakeCupti::SetThreadIdType(CUpti_ActivityThreadIdType) {
  const Lock lock(mutex_);
  return EnterActivity("SetThreadIdType");
}

CUptiResult FakeCupti::RegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("RegisterCallbacks"); r != CUPTI_SUCCESS)
    return r;
  request_ = request;
  complete_ = complete;
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Enable(CUpti_ActivityKind kind, const char* name) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity(name); r != CUPTI_SUCCESS) return r;
  if (const auto found = fail_kinds_.find(kind); found != fail_kinds_.end()) {
    return found->second;
  }
  enabled_.insert(kind);
  std::erase_if(left_out_, [&](const auto& call) {
    return KindOfCalls(call.first) == kind;
  });
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ++sessions_;
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::Disable(CUpti_ActivityKind kind) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("Disable"); r != CUPTI_SUCCESS) return r;
  Deliver();  // keeps records made while the kind was on
  enabled_.erase(kind);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableCall(bool on, CUpti_CallbackDomain domain,
                                  uint32_t id) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("EnableCall"); r != CUPTI_SUCCESS) return r;
  if (version_ < kSelectsCalls) return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  const char* name = nullptr;
  if (GetCallbackName(domain, id, &name) != CUPTI_SUCCESS) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  // Without the kind enabled, the call succeeds but has no effect.
  if (!enabled_.contains(KindOfCalls(domain))) return CUPTI_SUCCESS;
  Deliver();
  if (on) {
    left_out_.erase({domain, id});
  } else {
    left_out_.emplace(domain, id);
  }
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::EnableLatencyTimestamps(bool) {
  const Lock lock(mutex_);
  return EnterActivity("EnableLatencyTimestamps");
}

CUptiResult FakeCupti::EnableAllSyncRecords(bool on) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("EnableAllSyncRecords");
      r != CUPTI_SUCCESS) {
    return r;
  }
  if (version_ < kLeavesOutPolling) return CUPTI_ERROR_API_NOT_IMPLEMENTED;
  if (on) Deliver();  // handles calls made while it was off
  all_syncs_ = on;
  return CUPTI_SUCCESS;
}

void FakeCupti::QueueBytes(uint32_t kind, std::vector<uint8_t> record,
                           bool is_running) {
  const Lock lock(mutex_);
  // The record has this version's size.
  const size_t bytes = RecordBytesOf(kind, version_);
  if (bytes > 0) record.resize(bytes, kJunk);
  // Before 13.0, all threads share a buffer.
  const bool is_own = version_ >= kBuffersPerThread && !IsDeviceWork(kind);
  Queued queued = {
      .kind = kind,
      .thread = is_own ? std::this_thread::get_id() : std::thread::id(),
      .is_running = is_running,
      .bytes = std::move(record)};
  Confuse(queued);
  queue_.push_back(std::move(queued));
}

// In CUDA 13.0 and 13.1, a graph's work names the call before its launch from
// the second session on.
void FakeCupti::Confuse(Queued& queued) const {
  if (version_ < 130000 || version_ > 130100 || sessions_ < 2) return;
  const auto confuse = [&]<typename Record>(Record record) {
    if (record.graphId == 0) return;
    --record.correlationId;
    std::memcpy(queued.bytes.data(), &record,
                std::min(queued.bytes.size(), sizeof(record)));
  };
  if (queued.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    confuse(As<CUpti_ActivityKernel10>(queued.bytes));
  } else if (queued.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    confuse(As<CUpti_ActivityMemcpy6>(queued.bytes));
  } else if (queued.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    confuse(As<CUpti_ActivityMemset4>(queued.bytes));
  }
}

bool FakeCupti::IsWanted(const Queued& queued) const {
  if (!enabled_.contains(queued.kind)) return false;
  if (queued.kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
    return all_syncs_ ||
           As<CUpti_ActivitySynchronization2>(queued.bytes).returnValue !=
               kNotReady;
  }
  const auto is_left_out = [&](uint32_t domain) {
    const auto call = As<CUpti_ActivityAPI>(queued.bytes);
    return left_out_.contains({domain, uint32_t{call.cbid}});
  };
  if (queued.kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
    return !is_left_out(CUPTI_CB_DOMAIN_RUNTIME_API);
  }
  return queued.kind != CUPTI_ACTIVITY_KIND_DRIVER ||
         !is_left_out(CUPTI_CB_DOMAIN_DRIVER_API);
}

void FakeCupti::Write(const Queued& queued) {
  if (lose_every_ > 0 && ++written_ % lose_every_ == 0) {
    dropped_ += loss_counted_;
    return;
  }
  Open& open = open_[queued.thread];
  const size_t bytes = queued.bytes.size();
  if (open.data != nullptr && open.used + bytes > open.bytes) {
    OnWorker({std::exchange(open, Open{})}, std::chrono::milliseconds(0));
  }
  if (open.data == nullptr) {
    size_t most = 0;
    request_(&open.data, &open.bytes, &most);
    if (open.data == nullptr && version_ < kTakesNullBuffers) {
      std::fprintf(stderr, "FakeCupti: version %u has no buffer and crashes\n",
                   version_);
      std::abort();
    }
    if (open.data == nullptr || open.bytes < bytes) {
      open = Open{};
      ++dropped_;
      return;
    }
  }
  std::memcpy(open.data + open.used, queued.bytes.data(), bytes);
  open.used += bytes;
}

// A worker thread of CUPTI completes the buffers.
void FakeCupti::OnWorker(std::vector<Open> full,
                         std::chrono::milliseconds late) {
  const auto complete = complete_;
  std::thread worker([full = std::move(full), complete, late] {
    std::this_thread::sleep_for(late);
    for (const Open& open : full) {
      complete(nullptr, 0, open.data, open.bytes, open.used);
    }
  });
  if (late.count() == 0) {
    worker.join();
  } else {
    workers_.push_back(std::move(worker));
  }
}

void FakeCupti::AwaitWorker() {
  std::vector<std::thread> workers;
  {
    const Lock lock(mutex_);
    workers.swap(workers_);
  }
  for (std::thread& worker : workers) worker.join();
}

void FakeCupti::CompleteAll() {
  std::vector<Open> full;
  for (const auto& [thread, open] : std::exchange(open_, {})) {
    if (open.data != nullptr) full.push_back(open);
  }
  if (full.empty()) return;
  if (keep_buffers_) {
    kept_.insert(kept_.end(), full.begin(), full.end());
  } else {
    OnWorker(std::move(full), lateness_);
  }
}

void FakeCupti::Deliver(bool keep_last) {
  const Lock lock(mutex_);
  std::vector<Queued> running;
  for (Queued& queued : std::exchange(queue_, {})) {
    queued.was_wanted = queued.was_wanted || IsWanted(queued);
    if (!queued.was_wanted || request_ == nullptr) continue;
    if (queued.is_running) {
      running.push_back(std::move(queued));
    } else {
      Write(queued);
    }
  }
  queue_ = std::move(running);
  if (!keep_last) CompleteAll();
}

CUptiResult FakeCupti::FlushAll(uint32_t flag) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("FlushAll"); r != CUPTI_SUCCESS) return r;
  if (request_ == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
  // Unfinished records are delivered now or never.
  for (Queued& queued : queue_) {
    if (!queued.is_running || flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) {
      continue;
    }
    const uint64_t none = 0;
    std::memcpy(queued.bytes.data() + offsetof(CUpti_ActivityKernel10, end),
                &none, sizeof(none));
    if (request_ != nullptr) Write(queued);
  }
  std::erase_if(queue_, [](const Queued& queued) { return queued.is_running; });
  Deliver();
  CompleteAll();
  return CUPTI_SUCCESS;
}

void FakeCupti::ReturnKeptBuffers() {
  const Lock lock(mutex_);
  for (const Open& buffer : std::exchange(kept_, {})) {
    complete_(nullptr, 0, buffer.data, buffer.bytes, buffer.used);
  }
}

CUptiResult FakeCupti::GetNumDroppedRecords(size_t* dropped) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("GetNumDroppedRecords");
      r != CUPTI_SUCCESS) {
    return r;
  }
  *dropped = std::exchange(dropped_, 0);
  return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::GetTimestamp(uint64_t* timestamp_ns) {
  const Lock lock(mutex_);
  if (CUptiResult r = EnterActivity("GetTimestamp"); r != CUPTI_SUCCESS)
    return r;
  *timestamp_ns = ClockNow();
  return CUPTI_SUCCESS;
}

// As in the real library, all callbacks return first, except the calling one.
CUptiResult FakeCupti::Finalize() {
  std::unique_lock lock(mutex_);
  if (CUptiResult r = Enter("Finalize"); r != CUPTI_SUCCESS) return r;
  finalized_subscribed_ = finalized_subscribed_ || subscribed_;
  if (during_) {
    lock.unlock();
    during_();
    lock.lock();
  }
  const bool drained = callback_ended_.wait_for(lock, kPatience, [&] {
    return std::none_of(
        in_callback_.begin(), in_callback_.end(), [](const auto& entry) {
          return entry.second > 0 && entry.first != std::this_thread::get_id();
        });
  });
  finalize_hung_ = finalize_hung_ || !drained;
  ++finalized_;
  subscribed_ = false;
  callback_ = nullptr;
  domains_.clear();
  callbacks_.clear();
  enabled_.clear();
  left_out_.clear();
  all_syncs_ = true;
  return CUPTI_SUCCESS;
}

void FakeCupti::DetachByCounters() {
  const Lock lock(mutex_);
  ++detached_by_counters_;
  enabled_.clear();
  left_out_.clear();
}

bool FakeCupti::records_polls() const {
  const Lock lock(mutex_);
  return all_syncs_;
}

std::set<uint32_t> FakeCupti::enabled() const {
  const Lock lock(mutex_);
  return enabled_;
}
bool FakeCupti::call_enabled(CUpti_CallbackDomain domain, uint32_t id) const {
  const Lock lock(mutex_);
  return enabled_.contains(KindOfCalls(domain)) &&
         !left_out_.contains({domain, id});
}
bool FakeCupti::subscribed() const {
  const Lock lock(mutex_);
  return subscribed_;
}
std::vector<std::string> FakeCupti::calls() const {
  const Lock lock(mutex_);
  return calls_;
}

}  // namespace stepscope
