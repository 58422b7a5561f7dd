// Splits a Chrome trace into a header, events and a tail, so that a mutator can
// change events and values instead of bytes. Accepts any bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct ChromePieces {
  std::string head;                 // up to and including the events' "["
  std::vector<std::string> events;  // each is "{...}"
  std::string tail;                 // after the last event
};

// Splits the text. Text between two events is dropped.
ChromePieces CutChrome(std::string_view text);
// Joins the pieces. Adds only as many events as fit into `max_bytes`.
std::string JoinChrome(const ChromePieces& pieces, size_t max_bytes);

// The place of a value in an event, and its key.
struct ValuePlace {
  size_t begin = 0;
  size_t end = 0;
  std::string_view key;  // without quotes; points into the text
};

// Returns all values after a ":", including those inside args.
std::vector<ValuePlace> ValuesIn(std::string_view text);

}  // namespace stepscope
