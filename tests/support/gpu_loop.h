// Programs of program_simulator.h with one training thread and one GPU, of
// which a test writes the step alone. They have no jitter, and the GPU has no
// gaps of its own between kernels.
#pragma once

#include <string>

#include "support/program_simulator.h"

namespace stepscope {

// `count` ops of `host_us`, each of which launches a kernel of `us`.
inline std::string ManyKernels(int count, double us, double host_us) {
  return "repeat " + std::to_string(count) + " { op aten::add " +
         std::to_string(host_us) + "us { kernel some_kernel " +
         std::to_string(us) + "us } }\n";
}

// Reads a few numbers back into pageable memory: the copy's call waits.
inline constexpr char kReadBack[] = "copy d2h 16KB pageable async\n";

// Runs `step` as often as `options` say, or six times; `machine` holds further
// directives. Steps before the recording load the kernels' code.
inline ProgramRun RunGpuLoop(const std::string& step,
                             const SimulatorOptions& options = {},
                             const std::string& machine = "") {
  return MustRunProgram(
      "jitter host=0 device=0 loader=0 clock=0\n"
      "recorder kineto\n"
      "gpu A100 between=0ns\n" +
          machine + "\nstep {\n" + step + "}\n",
      options);
}

}  // namespace stepscope
