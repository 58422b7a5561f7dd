// A Chrome trace as a header, events and a tail, so that a mutator can work on
// events and on their values instead of on bytes. Takes any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct ChromePieces {
  std::string head;                 // to the "[" of the events, inclusive
  std::vector<std::string> events;  // "{...}" each
  std::string tail;                 // behind the last event
};

// Whatever stood between two events is left out.
ChromePieces CutChrome(std::string_view text);
// The file again; of the events only as many as fit into `max_bytes`.
std::string JoinChrome(const ChromePieces& pieces, size_t max_bytes);

// Where a value stands in an event: its bytes, and those of its key.
struct ValuePlace {
  size_t begin = 0;
  size_t end = 0;
  std::string_view key;  // without quotes; valid while the text is
};

// All values behind a ":", those inside of args as well.
std::vector<ValuePlace> ValuesIn(std::string_view text);

}  // namespace stepscope
