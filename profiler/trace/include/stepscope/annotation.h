// Annotation: something an analysis wants drawn beside the events. Exporters
// turn a list of them into rows of their format and know nothing of where they
// came from.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <string>

namespace stepscope {

struct Annotation {
  std::string row;   // "findings", "critical path", "phases"; one row of the
                     // viewer per distinct text
  std::string name;  // what the slice says
  std::string text;  // detail, shown on click; may be empty
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // equal to begin_ns: it concerns the whole window and is
                       // shown as a banner where there are any
  Severity severity = Severity::kNote;
};

}  // namespace stepscope
