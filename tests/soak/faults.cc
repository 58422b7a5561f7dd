// A library for LD_PRELOAD that injects faults into the process:
//
//   STEPSCOPE_SOAK_CLOCK=SECONDS   CLOCK_REALTIME jumps forwards or back by at
//                                  most SECONDS, four times a second
//   STEPSCOPE_SOAK_MEMORY=N        one in N allocations by stepscope's own
//                                  libraries throws std::bad_alloc
//   STEPSCOPE_SOAK_SEED=S          selects which ones (default 0)
//
// At the end, it prints to stderr what it did: "soak: 12 clock steps, 3 failed
// allocations". Only stepscope's allocations fail, because failures handled by
// the program itself would prove nothing.
#include <link.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int64_t> g_clock_steps = 0;
std::atomic<int64_t> g_failures = 0;

int64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

// Returns a pseudorandom number that depends only on `x` (splitmix64).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Makes the system call, because this library replaces the C library's
// function.
int RealClock(clockid_t clock, timespec* out) {
  return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
}

// Returns by how many seconds the clock is off now.
int64_t ClockShift() {
  static const int64_t most = NumberIn("STEPSCOPE_SOAK_CLOCK");
  static std::atomic<int64_t> last_quarter = -1;
  if (most == 0) return 0;
  timespec now{};
  RealClock(CLOCK_MONOTONIC, &now);
  const int64_t quarter = now.tv_sec * 4 + now.tv_nsec / 250'000'000;
  if (last_quarter.exchange(quarter) != quarter) ++g_clock_steps;
  return static_cast<int64_t>(Mix(static_cast<uint64_t>(quarter)) %
                              static_cast<uint64_t>(2 * most + 1)) -
         most;
}

// The code of stepscope's libraries. They may be loaded at any time, so every
// 1,024th allocation searches for them.
struct Code {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
};
std::array<Code, 8> g_code;
std::atomic<size_t> g_codes = 0;

int AddCode(dl_phdr_info* info, size_t, void*) {
  if (std::strstr(info->dlpi_name, "libstepscope") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    const size_t count = g_codes.load();
    for (size_t k = 0; k < count; ++k) {
      if (g_code[k].begin == begin) return 0;
    }
    if (count == g_code.size()) return 0;
    g_code[count].begin = begin;
    g_code[count].end = begin + part.p_memsz;
    g_codes = count + 1;
  }
  return 0;
}

bool Refuses(const void* caller) {
  static const int64_t one_in = NumberIn("STEPSCOPE_SOAK_MEMORY");
  static std::atomic<uint64_t> asked =
      Mix(static_cast<uint64_t>(NumberIn("STEPSCOPE_SOAK_SEED")));
  static std::atomic<uint64_t> calls = 0;
  if (one_in == 0) return false;
  if (calls.fetch_add(1) % 1024 == 0) dl_iterate_phdr(AddCode, nullptr);
  const auto address = reinterpret_cast<uintptr_t>(caller);
  for (size_t i = 0; i < g_codes; ++i) {
    if (address < g_code[i].begin || address >= g_code[i].end) continue;
    if (Mix(asked.fetch_add(1)) % static_cast<uint64_t>(one_in) != 0) {
      return false;
    }
    ++g_failures;
    return true;
  }
  return false;
}

void* Allocate(std::size_t bytes, const void* caller) {
  void* const memory = Refuses(caller) ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

__attribute__((destructor)) void Say() {
  char text[96];
  const int length = std::snprintf(
      text, sizeof(text), "soak: %lld clock steps, %lld failed allocations\n",
      static_cast<long long>(g_clock_steps.load()),
      static_cast<long long>(g_failures.load()));
  // If this write fails, nothing can report it.
  if (write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) return;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const int result = RealClock(clock, out);
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += ClockShift();
  return result;
}

extern "C" int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  *out = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
  return result;
}

extern "C" time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

void* operator new(std::size_t bytes) {
  return Allocate(bytes, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return Allocate(bytes, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Refuses(__builtin_return_address(0)) ? nullptr : std::malloc(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return Refuses(__builtin_return_address(0)) ? nullptr : std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
