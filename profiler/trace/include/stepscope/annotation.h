// Annotation: a slice that an analysis adds to the exported trace, beside the
// recorded events. Exporters draw a list of them as extra rows.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <string>

namespace stepscope {

struct Annotation {
  std::string row;   // "findings", "critical path", "phases": annotations with
                     // the same text share a row of the viewer
  std::string name;  // the slice's label
  std::string text;  // detail, shown on click; may be empty
  int64_t begin_ns = 0;
  // Equal to begin_ns if the annotation concerns the whole window. Formats that
  // have banners then show it as a banner.
  int64_t end_ns = 0;
  Severity severity = Severity::kNote;
};

// One end of an arrow between the timelines of two ranks. The other end has the
// same id and may be in another rank's Trace.
struct TimelineArrow {
  int64_t id = 0;
  bool is_start = true;
  // The event at this end of the arrow: a row of kernels() or, if that is
  // kNone, the host range or op with exactly these times.
  RowId kernel = kNone;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t at_ns = 0;  // on the same clock, within the event
};

}  // namespace stepscope
