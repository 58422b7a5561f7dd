// Programs for program_simulator.h with one training thread and one GPU. A test
// writes only the step. There is no jitter, and the GPU has no gaps of its own
// between kernels.
#pragma once

#include <string>

#include "support/program_simulator.h"

namespace stepscope {

// Returns `count` ops of `host_us`, each of which launches a kernel of `us`.
inline std::string ManyKernels(int count, double us, double host_us) {
  return "repeat " + std::to_string(count) + " { op aten::add " +
         std::to_string(host_us) + "us { kernel some_kernel " +
         std::to_string(us) + "us } }\n";
}

// Reads a few numbers back into pageable memory, so that the copy call waits.
inline constexpr char kReadBack[] = "copy d2h 16KB pageable async\n";

// Runs `step` as often as `options` says, or six times. `machine` has further
// directives. The kernels' code is loaded in steps before the recording.
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
