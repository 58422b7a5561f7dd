// The line "_counters_" of a GPU plane, which XProf's trace viewer draws as
// area charts: the device samples (clocks, power, ...) and the allocator's
// bytes.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_plane.h"

namespace stepscope {

class XCounters {
 public:
  XCounters(const XContext& context, int32_t device, XNames* names);

  size_t count() const { return points_.size(); }
  void Event(size_t i, XEventBytes& event) const;

 private:
  struct Point {
    int64_t time_ns;
    double value;
    uint8_t counter;
  };
  void AddSamples();
  void AddMemory();

  const XContext& context_;
  const int32_t device_;
  XNames& names_;
  std::vector<Point> points_;  // by time
};

}  // namespace stepscope
