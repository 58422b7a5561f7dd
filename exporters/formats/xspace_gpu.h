// The planes /device:GPU:<n> of an XSpace: tiled steps, waits for data, one
// line per stream.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "xspace_context.h"
#include "xspace_plane.h"

namespace stepscope {

// The devices that did anything, by ordinal.
std::set<int32_t> XDevices(const Trace& trace);

class XGpuPlane {
 public:
  XGpuPlane(const XContext& context, int32_t device);
  void Write(FileSink& sink);

 private:
  struct Ref {
    Table table;
    RowId row;
  };
  struct Tile {
    RowId step;
    int64_t begin_ns;
    int64_t end_ns;
  };

  void Sort();
  void FindTiles();
  XPlaneStats DeviceStats() const;
  std::string StreamName(int64_t stream, const std::vector<Ref>& refs) const;
  void StepEvent(const Tile& tile, XEventBytes& event);
  void WaitEvent(RowId range, XEventBytes& event);
  void Event(const Ref& ref, XEventBytes& event);
  void KernelEvent(const Kernel& kernel, XEventBytes& event);
  void CopyEvent(const Copy& copy, XEventBytes& event);
  void Common(const DeviceWork& work, bool counts, XEventBytes& event);
  std::string Details(const Kernel& kernel) const;
  // "(half[64,3,224,224])" from the op's first tensor; "" if unknown.
  std::string Shape(const Kernel& kernel) const;

  const XContext& context_;
  const Trace& trace_;
  const int32_t device_;
  XNames names_;
  XTfOps tf_ops_;
  std::map<int64_t, std::vector<Ref>> streams_;
  std::vector<Tile> tiles_;
  std::vector<RowId> waits_;  // loader ranges on the training thread
};

}  // namespace stepscope
