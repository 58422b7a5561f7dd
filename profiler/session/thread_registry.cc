#include "thread_registry.h"

#include <absl/strings/str_cat.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <thread>
#include <utility>

namespace stepscope {
namespace internal {

// constinit and trivially destructible, so that reading it needs no guard and
// is safe while a thread exits.
constinit thread_local ThreadLog* t_log = nullptr;

}  // namespace internal

namespace {

// The system call that makes every core running this process execute a barrier.
// It moves the cost from the writers, which run at every operator, to Close(),
// which runs once per window: writers need no fence.
long Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// Enough for a few steps of a usual model. Mapping it takes 1.5 ms.
constexpr int64_t kReadyBytes = int64_t{4} << 20;

// Set once the thread's destructors have run. The thread records nothing
// afterwards.
constinit thread_local bool t_exited = false;

// Tells the registry when a recording thread exits.
struct ExitNotice {
  RegisteredLog* log = nullptr;
  ~ExitNotice() {
    t_exited = true;
    internal::t_log = nullptr;
    if (log != nullptr) ThreadRegistry::Get().ThreadExits(log);
  }
};
thread_local ExitNotice t_exit_notice;

std::string NameOfThisThread() {
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

std::string NameOfThread(int64_t tid) {
  std::ifstream file(absl::StrCat("/proc/self/task/", tid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

// Returns no name if memory has run out, because records matter more than
// names.
template <typename Read>
std::string NameOrNone(Read read) noexcept {
  try {
    return read();
  } catch (const std::bad_alloc&) {
    return {};
  }
}

// Moves the log to window `number`, with nothing recorded and nothing open.
void Adopt(RegisteredLog* log, uint64_t number) {
  if (log->abandoned.exchange(false, std::memory_order_acquire))
    UnmapChunks(log->last);
  log->window = number;
  log->cursor = log->limit = nullptr;
  log->last = nullptr;
  log->top = log->open_base;
  log->full = false;
  log->dropped = log->cut = 0;
}

}  // namespace

// Never destroyed, because threads may record until the process ends, after
// static destructors have run.
ThreadRegistry& ThreadRegistry::Get() {
  static ThreadRegistry* const registry = new ThreadRegistry;
  return *registry;
}

ThreadRegistry::ThreadRegistry() {
  // Without the system call (old kernels, seccomp) each write needs its own
  // fence (needs_fence).
  has_membarrier_ = Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
}

absl::StatusOr<uint64_t> ThreadRegistry::Open(int64_t max_bytes) {
  ReadClock();  // chooses the clock before the first ticks are read
  // Opening only publishes a number. Each thread moves its own log to the new
  // window when it next writes.
  std::lock_guard lock(mutex_);
  if (open_ != 0) {
    return absl::FailedPreconditionError(
        "event buffers: a window is already open in this process, which can "
        "have one at a time; end the other profile first");
  }
  max_bytes_ = max_bytes;
  bytes_left_.store(max_bytes, std::memory_order_relaxed);
  ready_.Fill(static_cast<size_t>(std::min(max_bytes, kReadyBytes)) /
              kChunkBytes);
  open_ = ++opened_;
  internal::g_window.store(open_, std::memory_order_release);
  return open_;
}

// After the barrier every running writer either sees that the window is closed,
// or its busy flag is visible here (BeginWrite() has the other half).
//
// A thread that lost its core inside a write keeps its flag until it gets a
// core again. All such threads are waited for together: one after the other,
// 300 threads on two cores could take a minute. Sleeps instead of yielding,
// because a thread that yields queues behind all of them.
void ThreadRegistry::WaitUntilQuiet(
    std::vector<RegisteredLog*>& writing) noexcept {
  internal::g_window.store(0, std::memory_order_seq_cst);
  if (has_membarrier_) Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  writing = logs_;
  const auto quiet = [](const RegisteredLog* log) {
    return log->busy.load(std::memory_order_seq_cst) == 0;
  };
  // Long enough for writers that have a core.
  constexpr int kSpins = 1000;
  for (int i = 0; i < kSpins && !writing.empty(); ++i)
    std::erase_if(writing, quiet);
  const auto deadline = std::chrono::steady_clock::now() + kMostWriteWait;
  while (!writing.empty() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::erase_if(writing, quiet);
  }
}

std::unique_ptr<EventRecording> ThreadRegistry::Close(uint64_t number) {
  auto recording = std::make_unique<EventRecording>();
  std::lock_guard lock(mutex_);
  if (open_ != number) return recording;
  // Memory may run out up to here, and the window is then still open. Nothing
  // after this throws.
  std::vector<RegisteredLog*> writing;
  std::vector<RegisteredLog*> alive;
  writing.reserve(logs_.size());
  alive.reserve(logs_.size());
  WaitUntilQuiet(writing);
  open_ = 0;
  recording->SetUnfinished(static_cast<int64_t>(writing.size()));
  recording->SetClosed(getpid(), NowTicks(), max_bytes_);
  for (RegisteredLog* log : logs_) {
    if (std::ranges::find(writing, log) != writing.end()) {
      // Only the writing thread may touch this log.
      log->abandoned.store(true, std::memory_order_release);
      alive.push_back(log);
      continue;
    }
    if (log->window == number) {
      if (!log->exited) {
        log->name = NameOrNone([log] { return NameOfThread(log->tid); });
      }
      // The log is only read here. Its thread moves it to the next window
      // itself, and may be reading it now.
      recording->TakeThread(*log);
    }
    if (log->exited) {
      delete[] log->open_base;
      delete log;
    } else {
      alive.push_back(log);
    }
  }
  // Logs of exited threads were kept only until this window took their chunks.
  logs_ = std::move(alive);
  recording->TakeUnused(ready_.Drain());
  return recording;
}

void ThreadRegistry::Discard(uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  if (open_ != number) return;
  internal::g_window.store(0, std::memory_order_seq_cst);
  open_ = 0;
  std::erase_if(logs_, [number](RegisteredLog* log) {
    if (!log->exited) {
      // The thread may be inside a write. It frees the chunks itself later.
      if (log->window == number) {
        log->abandoned.store(true, std::memory_order_release);
      }
      return false;
    }
    UnmapChunks(log->last);
    delete[] log->open_base;
    delete log;
    return true;
  });
  UnmapUnused(ready_.Drain());
}

// Called at a thread's first event. Uses nothrow, because a hook must not throw
// into LibTorch or CUDA.
ThreadLog* ThreadRegistry::Register() noexcept {
  auto* log = new (std::nothrow) RegisteredLog;
  if (log == nullptr) return nullptr;
  log->tid = syscall(SYS_gettid);
  log->needs_fence = !has_membarrier_;
  std::lock_guard lock(mutex_);
  try {
    logs_.push_back(log);
  } catch (const std::bad_alloc&) {
    delete log;
    return nullptr;
  }
  t_exit_notice.log = log;
  internal::t_log = log;
  return log;
}

// If the thread recorded in the open window, its log stays until the window
// closes. Otherwise nothing refers to the log, and it is freed.
void ThreadRegistry::ThreadExits(RegisteredLog* log) noexcept {
  std::lock_guard lock(mutex_);
  if (open_ != 0 && log->window == open_) {
    log->name = NameOrNone(NameOfThisThread);
    log->exited = true;
    return;
  }
  std::erase(logs_, log);
  if (log->abandoned.load(std::memory_order_acquire)) UnmapChunks(log->last);
  delete[] log->open_base;
  delete log;
}

Chunk* ThreadRegistry::TakeChunk() noexcept {
  constexpr auto kBytes = static_cast<int64_t>(kChunkBytes);
  // Other threads take chunks at the same time, so subtract from the budget
  // first, and add back if it was too small.
  if (bytes_left_.fetch_sub(kBytes, std::memory_order_relaxed) < kBytes) {
    bytes_left_.fetch_add(kBytes, std::memory_order_relaxed);
    return nullptr;
  }
  Chunk* chunk = ready_.Take();
  return chunk != nullptr ? chunk : MapChunk();
}

// The lock is held around a fork, so that the child finds the list intact. The
// window belongs to the parent: the child leaves alone its chunks and the logs
// of threads that do not exist in the child.
void ThreadRegistry::BeforeFork() { Get().mutex_.lock(); }

void ThreadRegistry::AfterForkInParent() { Get().mutex_.unlock(); }

// The child has one thread, so nothing races. It abandons the parent's chunks,
// which are copy-on-write pages that the parent decodes.
void ThreadRegistry::AfterForkInChild() {
  ThreadRegistry& registry = Get();
  internal::g_window.store(0, std::memory_order_relaxed);
  registry.open_ = 0;
  registry.logs_.clear();
  registry.ready_.Drain();
  if (auto* own = static_cast<RegisteredLog*>(internal::t_log)) {
    // No window has this number, so the next BeginWrite() adopts the log.
    own->abandoned.store(false, std::memory_order_relaxed);
    Adopt(own, ~uint64_t{0});
    own->tid = syscall(SYS_gettid);
    registry.logs_.push_back(own);
  }
  registry.mutex_.unlock();
}

namespace internal {

ThreadLog* BeginWriteSlow() noexcept {
  if (t_exited || g_window.load(std::memory_order_relaxed) == 0) return nullptr;
  ThreadLog* log = t_log;
  if (log == nullptr) {
    log = ThreadRegistry::Get().Register();
    if (log == nullptr) return nullptr;
  }
  // Set the flag first, then read the window, both sequentially consistent, for
  // the reason given in BeginWrite().
  log->busy.store(1, std::memory_order_seq_cst);
  const uint64_t number = g_window.load(std::memory_order_seq_cst);
  if (number == 0) {
    log->busy.store(0, std::memory_order_release);
    return nullptr;
  }
  if (log->window != number) Adopt(static_cast<RegisteredLog*>(log), number);
  return log;
}

Slot* ReserveSlow(ThreadLog* log, size_t n) noexcept {
  auto* owner = static_cast<RegisteredLog*>(log);
  // Once a chunk is refused, the thread drops all later events of the window,
  // so that its log simply ends instead of having holes.
  Chunk* chunk = log->full ? nullptr : ThreadRegistry::Get().TakeChunk();
  if (chunk == nullptr) {
    log->full = true;
    log->limit = log->cursor;  // drop smaller records, too
    ++log->dropped;
    return nullptr;
  }
  if (owner->last != nullptr) owner->last->used_end = log->cursor;
  chunk->previous = owner->last;
  owner->last = chunk;
  log->cursor = chunk->begin() + n;
  log->limit = chunk->end();
  return chunk->begin();
}

bool GrowOpen(ThreadLog* log) noexcept {
  const size_t depth = log->top - log->open_base;
  const size_t capacity = depth == 0 ? 64 : depth * 2;
  auto* grown = new (std::nothrow) OpenOp[capacity];
  if (grown == nullptr) return false;
  std::copy(log->open_base, log->top, grown);
  delete[] log->open_base;
  log->open_base = grown;
  log->top = grown + depth;
  log->open_limit = grown + capacity;
  return true;
}

// Called if the operator that ends is not the innermost open one of its thread.
Slot* PopSlow(ThreadLog* log, const void* key, Ticks now) noexcept {
  const auto note = [log](SlotTag tag, uint64_t first, const void* about) {
    Slot* slot = log->cursor;
    if (log->limit - slot < 1)
      slot = ReserveSlow(log, 1);
    else
      log->cursor = slot + 1;
    if (slot == nullptr) return;
    *slot = {{first, reinterpret_cast<uint64_t>(about), 0, PackTail(tag, 0)}};
  };
  // Operators nearly always nest, so the search is short.
  OpenOp* found = log->top;
  while (found != log->open_base && found[-1].key != key) --found;
  // The operator began on another thread: write its end and key here, for the
  // decoder.
  if (found == log->open_base) {
    note(kForeignEndSlot, now, key);
    return nullptr;
  }
  // The operators above it began later and have not ended. Another thread will
  // end them.
  for (OpenOp* late = found; late != log->top; ++late) {
    if (late->slot == nullptr) continue;
    note(kUnendedSlot, reinterpret_cast<uint64_t>(late->slot), late->key);
  }
  log->top = found - 1;
  return found[-1].slot;
}

}  // namespace internal
}  // namespace stepscope
