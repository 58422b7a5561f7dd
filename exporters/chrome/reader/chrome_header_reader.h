// Reads the header of a Chrome trace, which is the keys beside `traceEvents`:
// Kineto's keys and our own object "stepscope".
#pragma once

#include <cstdint>
#include <string>

#include "rows/own_header_reader.h"

namespace stepscope {

struct ChromeHeader : OwnHeader {
  bool is_kineto = false;  // has keys that only Kineto writes
  int64_t base_ns = 0;     // ns since the epoch at `ts` 0
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;
  bool is_timeline = false;  // several ranks, as TimelineWriter writes them
};

// Reads `json`, one object, into `header`. Returns false and leaves `header`
// unchanged if it is not valid JSON.
bool ReadChromeHeader(const std::string& json, ChromeHeader* header);

}  // namespace stepscope
