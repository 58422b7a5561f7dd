// Copies an argument of a Chrome event into a field of a row.
#pragma once

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope {

// Sets `value` if the event has the argument and it is a whole number.
template <typename Integer>
void Take(const ChromeEvent& event, ArgKey key, Integer* value) {
  if (const auto number = ToInteger(event.arg(key)))
    *value = static_cast<Integer>(*number);
}

}  // namespace stepscope
