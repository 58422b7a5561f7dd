// What the readers of Chrome rows share: an argument into a field of a row.
#pragma once

#include <stepscope/event.h>

#include <cstdint>

#include "chrome_event_reader.h"

namespace stepscope {

// Times beyond this are damage: adding a duration could overflow.
inline constexpr int64_t kLargestNs = int64_t{4'600'000'000'000'000'000};

// Sets `value` if the event has the argument and it is a whole number.
template <typename Integer>
void Take(const ChromeEvent& event, ArgKey key, Integer* value) {
  if (const auto number = ToInteger(event.arg(key)))
    *value = static_cast<Integer>(*number);
}

// The bit of a kind in a set of kinds.
inline uint64_t Bit(Kind kind) { return uint64_t{1} << static_cast<int>(kind); }

}  // namespace stepscope
