// XGpuTexts: the ids of the texts of one GPU's plane. Each text is made once
// for all activities that have it.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "xspace/writer/xspace_plane.h"
#include "xspace/writer/xspace_program.h"

namespace stepscope {

class XGpuTexts {
 public:
  XGpuTexts(const Trace& trace, const XProgram& program, XNames* names)
      : trace_(trace),
        program_(program),
        names_(*names),
        instructions_(program.instructions().size()) {}

  // Returns the event_metadata id of the kernel's name, by which XProf must see
  // whether it uses Tensor Cores (NameForViewers()).
  int64_t KernelName(NameId name);
  int64_t KernelDetails(const Kernel& kernel);
  // 0 if there is none.
  int64_t Shape(const Kernel& kernel);
  int64_t Context(int32_t context);
  int64_t Instruction(RowId instruction);
  int64_t ProgramName();

 private:
  // The fields from which XKernelDetails() makes its text.
  struct LaunchShape {
    std::array<int32_t, 3> grid;
    std::array<int32_t, 3> block;
    int32_t registers;
    int32_t shared_bytes;
    uint32_t occupancy_bits;  // NaN equals itself
    bool operator==(const LaunchShape&) const = default;
    struct Hash {
      size_t operator()(const LaunchShape& shape) const;
    };
  };

  const Trace& trace_;
  const XProgram& program_;
  XNames& names_;
  // The id of each text; 0 in instructions_ and program_name_ if not used yet.
  std::unordered_map<NameId, int64_t> kernel_names_;
  std::unordered_map<uint64_t, int64_t> shapes_;  // by inputs and name
  std::unordered_map<LaunchShape, int64_t, LaunchShape::Hash> details_;
  std::unordered_map<int32_t, int64_t> contexts_;
  std::vector<int64_t> instructions_;
  int64_t program_name_ = 0;
};

}  // namespace stepscope
