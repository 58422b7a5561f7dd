#include "thread_ranges.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace stepscope {
namespace {

struct OpenedRange {
  uint64_t number = 0;
  RangeToken token;
};

// Of a range that was never closed the window has long ended; they must not
// pile up.
constexpr size_t kMostOpen = 1024;

std::vector<OpenedRange>& OfThisThread() {
  thread_local std::vector<OpenedRange> ranges;
  return ranges;
}

std::atomic<uint64_t> g_next{1};

}  // namespace

uint64_t OpenThreadRange(RangeKind kind, std::string_view name,
                         std::string_view detail) {
  const RangeToken token = OpenRange(kind, name, detail);
  if (token.window == 0) return 0;
  std::vector<OpenedRange>& ranges = OfThisThread();
  // Ranges of the open window stay: they may still be closed.
  thread_local size_t next_sweep = kMostOpen;
  if (ranges.size() >= next_sweep) {
    std::erase_if(ranges, [&](const OpenedRange& range) {
      return range.token.window != token.window;
    });
    // Twice as many, so that sweeps take constant time per range.
    next_sweep = std::max(kMostOpen, 2 * ranges.size());
  }
  const uint64_t number = g_next.fetch_add(1, std::memory_order_relaxed);
  ranges.push_back({number, token});
  return number;
}

bool CloseThreadRange(uint64_t number) {
  std::vector<OpenedRange>& ranges = OfThisThread();
  // From the back, because most ranges end in the reverse order of their
  // begins.
  const auto found = std::find_if(
      ranges.rbegin(), ranges.rend(),
      [number](const OpenedRange& range) { return range.number == number; });
  if (found == ranges.rend()) return false;
  CloseRange(found->token);
  ranges.erase(std::next(found).base());
  return true;
}

}  // namespace stepscope
