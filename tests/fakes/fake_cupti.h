// FakeCupti: the part of CUPTI that stepscope uses, in this process and without
// a device. It remembers what is enabled, subscribed and registered, delivers
// records that a test queued, and drops and counts records without a buffer. It
// can fail any call: the n-th one, or all of one name. FakeDriver goes with it.
//
// It behaves like the version that it claims to be:
// - records have that version's size, with junk in fields that our header does
//   not know;
// - before CUDA 12.9 (version 27), it aborts if a request for a buffer is
//   refused;
// - from CUDA 13.0 on, each thread has its own buffer, and the device's records
//   are in a buffer of the worker thread;
// - CUDA 13.0 and 13.1 confuse the launches of graphs after the first session;
// - single calls can be left out while the kind of their records is enabled.
//   Enabling the kind again forgets this. Without the kind, switching a call on
//   succeeds but has no effect (seen on an H200, CUDA 13.0);
// - calls that the version lacks are missing (EnableCall, EnableAllSyncRecords,
//   hardware counters: fake_counters.h).
//
// In all versions, a worker thread completes buffers, late if a test says so; a
// forced flush delivers unfinished kernels without an end; and Finalize() waits
// for running callbacks.
//
// Any thread may call it.
#pragma once

#include <stepscope/clock.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/cuda_driver.h"
#include "api/cupti_api.h"
#include "fakes/cupti_records.h"

namespace stepscope {

// The object that a test controls and reads. It outlives the api objects made
// from it, as the library outlives its users.
class FakeCupti {
 public:
  explicit FakeCupti(uint32_t version = 130001) : version_(version) {}
  ~FakeCupti() { AwaitWorker(); }

  // Returns a handle on this fake, like LoadCupti() for the real library.
  std::unique_ptr<CuptiApi> Api();

  // Makes the n-th call from now (from 1) return `code` and do nothing.
  void FailCall(int n, CUptiResult code);
  // The same for each call of this name ("Enable", "Subscribe", ...).
  void FailAll(const std::string& name, CUptiResult code);
  // The same for calls that enable this kind.
  void FailKind(CUpti_ActivityKind kind, CUptiResult code);
  void FailNothing();
  // Another tool subscribes; "": it leaves.
  void HoldBy(const std::string& tool);
  // Another tool uses the newer family of activity calls (CUDA 13.2), so that
  // all calls of the older family fail.
  void UseNewerFamily(bool used);
  // Adds to the result of GetTimestamp() (ns), which is otherwise our clock's
  // time. A second call makes the clock step.
  void SetClockOffset(int64_t ns) { offset_ns_ = ns; }
  // From now on, the clock gains `share` of the elapsed time.
  void SetClockDrift(double share);
  // Returns GetTimestamp()'s current result without counting as a call.
  uint64_t ClockNow() const;

  // Queues a record. FlushAll() or Deliver() delivers it if its kind is
  // enabled. No record is queued if its kind is off.
  template <typename Record>
  void Queue(const Record& record, bool is_running = false) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    QueueBytes(static_cast<uint32_t>(record.kind),
               {bytes, bytes + sizeof(record)}, is_running);
  }
  // Queues a kernel that does not end within its window: only a forced flush
  // delivers it, without an end.
  void QueueRunning(const CUpti_ActivityKernel10& record) {
    Queue(record, /*is_running=*/true);
  }
  // Fills buffers with the queued records and completes the full ones. The last
  // one stays with CUPTI until a flush, unless `keep_last` is false.
  void Deliver(bool keep_last = true);
  // If `keep`, a flush no longer returns the last buffer.
  void KeepBuffers(bool keep) { keep_buffers_ = keep; }
  void ReturnKeptBuffers();
  // From now on, a flush returns at once, and the worker thread completes the
  // buffers after `late`.
  void SetLateness(std::chrono::milliseconds late) { lateness_ = late; }
  void AwaitWorker();
  // Loses every n-th record. It counts as dropped only if `counted`.
  void LoseEvery(int n, bool counted);

  // The program enters and leaves a CUDA call, and the subscriber is called.
  void ProgramCalls(uint32_t cbid = 211,
                    CUpti_CallbackDomain domain = CUPTI_CB_DOMAIN_RUNTIME_API);
  // The program captures a CUDA graph on a stream. `code` is the result of the
  // calls (0: success).
  void BeginCapture(uintptr_t stream = 1, int code = 0) {
    CaptureCall(true, stream, code);
  }
  void EndCapture(uintptr_t stream = 1, int code = 0) {
    CaptureCall(false, stream, code);
  }
  // A graph gets a node with this ID, or a copy of a node, as when the graph is
  // instantiated.
  void CreateNode(uint64_t node,
                  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL);
  void CloneNode(uint64_t node, uint64_t original);
  // Sets a function that runs in Finalize() after it has started.
  void DuringFinalize(std::function<void()> run) { during_ = std::move(run); }
  // Sets a function that runs in EnableDomain() after the domain is on.
  void DuringEnableDomain(std::function<void()> run) {
    during_enable_domain_ = std::move(run);
  }
  // Another thread left its CUDA call before the subscriber was removed, and
  // now reaches the last callback.
  void ReenterCallback();
  int callbacks_entered() const { return callbacks_entered_; }

  // The current state.
  std::set<uint32_t> enabled() const;  // kinds
  bool call_enabled(CUpti_CallbackDomain domain, uint32_t id) const;
  bool subscribed() const;
  bool records_polls() const;
  int finalized() const { return finalized_; }
  // True if Finalize() waited in vain for a callback, or was called while a
  // subscriber existed.
  bool finalize_hung() const { return finalize_hung_; }
  bool finalized_subscribed() const { return finalized_subscribed_; }
  int call_count() const { return call_count_; }
  std::vector<std::string> calls() const;  // names in the order of calling
  uint32_t version() const { return version_; }

  // CUPTI's functions.
  CUptiResult Subscribe(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*,
                        std::string*);
  CUptiResult Unsubscribe(CUpti_SubscriberHandle);
  CUptiResult EnableDomain(bool, CUpti_SubscriberHandle, CUpti_CallbackDomain);
  CUptiResult GetCallbackName(CUpti_CallbackDomain, uint32_t, const char**);
  CUptiResult EnableCallback(bool, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                             uint32_t);
  CUptiResult GetGraphNodeId(CUgraphNode, uint64_t*);
  CUptiResult SetThreadIdType(CUpti_ActivityThreadIdType);
  CUptiResult RegisterCallbacks(CUpti_BuffersCallbackRequestFunc,
                                CUpti_BuffersCallbackCompleteFunc);
  CUptiResult Enable(CUpti_ActivityKind, const char* name = "Enable");
  CUptiResult Disable(CUpti_ActivityKind);
  CUptiResult EnableCall(bool, CUpti_CallbackDomain, uint32_t);
  CUptiResult EnableLatencyTimestamps(bool);
  CUptiResult EnableAllSyncRecords(bool);
  CUptiResult FlushAll(uint32_t);
  CUptiResult GetNumDroppedRecords(size_t*);
  CUptiResult GetTimestamp(uint64_t*);
  CUptiResult Finalize();
  // The effect of releasing hardware counters (fake_counters.h): as Finalize().
  void DetachByCounters();
  int detached_by_counters() const { return detached_by_counters_; }

 private:
  using Lock = std::lock_guard<std::recursive_mutex>;
  struct Open {
    uint8_t* data = nullptr;
    size_t bytes = 0;
    size_t used = 0;
  };
  struct Queued {
    uint32_t kind = 0;
    std::thread::id thread;
    bool is_running = false;
    bool was_wanted = false;  // in an earlier Deliver()
    std::vector<uint8_t> bytes;
  };
  void QueueBytes(uint32_t kind, std::vector<uint8_t> record, bool is_running);
  CUptiResult Enter(const char* name);
  void Tell(CUpti_CallbackDomain domain, uint32_t id, const void* details);
  void CaptureCall(bool begins, uintptr_t stream, int code);
  CUptiResult EnterActivity(const char* name);
  bool IsWanted(const Queued& queued) const;
  void Confuse(Queued& queued) const;
  void Write(const Queued& queued);
  void CompleteAll();
  void OnWorker(std::vector<Open> full, std::chrono::milliseconds late);

  mutable std::recursive_mutex mutex_;
  const uint32_t version_;
  int64_t offset_ns_ = 0;
  double drift_ = 0;
  int64_t drift_since_ns_ = 0;
  int call_count_ = 0;
  int fail_at_ = 0;
  CUptiResult fail_code_ = CUPTI_SUCCESS;
  std::map<std::string, CUptiResult> fail_names_;
  std::map<uint32_t, CUptiResult> fail_kinds_;
  std::vector<std::string> calls_;
  std::string holder_;
  bool newer_family_ = false;
  bool subscribed_ = false;
  CUpti_CallbackFunc callback_ = nullptr;
  void* user_ = nullptr;
  std::set<uint32_t> domains_;
  std::set<std::pair<uint32_t, uint32_t>> callbacks_;  // single callbacks
  std::set<uint32_t> enabled_;
  std::set<std::pair<uint32_t, uint32_t>> left_out_;  // (domain, id) of calls
  bool all_syncs_ = true;
  int sessions_ = 0;  // sessions that recorded kernels
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::vector<Queued> queue_;
  std::map<std::thread::id, Open> open_;
  std::vector<Open> kept_;
  bool keep_buffers_ = false;
  std::chrono::milliseconds lateness_{0};
  std::vector<std::thread> workers_;
  int lose_every_ = 0;
  bool loss_counted_ = false;
  int written_ = 0;
  size_t dropped_ = 0;
  int finalized_ = 0;
  std::atomic<int> detached_by_counters_{0};
  bool finalize_hung_ = false;
  bool finalized_subscribed_ = false;
  std::function<void()> during_;
  std::function<void()> during_enable_domain_;
  std::condition_variable_any callback_ended_;
  std::map<std::thread::id, int> in_callback_;
  CUpti_CallbackFunc last_callback_ = nullptr;
  std::atomic<int> callbacks_entered_{0};  // by ReenterCallback()
};

// A driver that returns what a test sets.
class FakeDriver : public CudaDriver {
 public:
  struct State {
    absl::Status initialize = absl::OkStatus();
    absl::Status in_use = absl::OkStatus();
    absl::Status synchronize = absl::OkStatus();
    std::vector<DeviceLimits> devices = {};
    int64_t free_bytes = -1;  // -1: no context on this thread
    int64_t total_bytes = -1;
    int synchronized = 0;
    int asked_for_memory = 0;
  };
  explicit FakeDriver(State* state) : state_(state) {}

  absl::Status Initialize() override { return state_->initialize; }
  absl::Status InUse() const override { return state_->in_use; }
  int version() const override { return 13000; }
  std::vector<DeviceLimits> Devices() const override { return state_->devices; }
  absl::Status Synchronize() override {
    ++state_->synchronized;
    return state_->synchronize;
  }
  bool MemoryOfCurrentDevice(int32_t* device, int64_t* free_bytes,
                             int64_t* total_bytes) const override {
    ++state_->asked_for_memory;
    *device = 0;
    *free_bytes = state_->free_bytes;
    *total_bytes = state_->total_bytes;
    return state_->free_bytes >= 0;
  }

 private:
  State* state_;
};

}  // namespace stepscope
