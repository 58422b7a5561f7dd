// The planes /device:GPU:<n> of an XSpace: steps without gaps, waits for data,
// one line per stream, counters.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rows/row_sequence.h"
#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_counters.h"
#include "xspace/writer/xspace_gpu_texts.h"
#include "xspace/writer/xspace_plane.h"
#include "xspace/writer/xspace_program.h"

namespace stepscope {

// The ordinals of the devices with any activity.
std::set<int32_t> XDevices(const Trace& trace);

class XGpuPlane {
 public:
  // `input_wait`: draw the training thread's waits for batches as a line that
  // XProf counts as input.
  XGpuPlane(const XContext& context, const XProgram& program, int32_t device,
            bool input_wait);
  // False, with nothing written, if the file has no room left.
  bool Write(XSpaceFile& file);

 private:
  struct Tile {
    RowId step;
    int64_t begin_ns;
    int64_t end_ns;
  };

  void Sort();
  void FindTiles();
  void FindWaits();
  XPlaneStats DeviceStats() const;
  std::string StreamName(int64_t stream, const RowSequence& rows) const;
  void StepEvent(const Tile& tile, XEventBytes& event);
  void WaitEvent(RowId range, XEventBytes& event);
  void Event(Table table, RowId row, XEventBytes& event);
  void KernelEvent(RowId row, XEventBytes& event);
  void CopyEvent(const Copy& copy, XEventBytes& event);
  void Common(const DeviceWork& work, bool counts, XEventBytes& event);
  void LaunchedBy(const DeviceWork& work, XEventBytes& event);

  const XContext& context_;
  const XProgram& program_;
  const Trace& trace_;
  const int32_t device_;
  XNames names_;
  XTfOps tf_ops_;
  XFusedOps fused_ops_;
  XGpuTexts texts_;
  XCounters counters_;
  std::map<int64_t, RowSequence> streams_;
  std::vector<Tile> tiles_;
  std::vector<RowId> waits_;  // loader ranges on the training thread
};

}  // namespace stepscope
