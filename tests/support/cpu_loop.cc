#include "support/cpu_loop.h"

#include <cstdio>
#include <utility>

#include "support/program_simulator.h"

namespace stepscope {
namespace {

// Returns for example "12.5us", with every digit of the double.
std::string With(double value, const char* unit) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g%s", value, unit);
  return text;
}

std::string OpText(const LoopOp& op) {
  const std::string kernel = "op " + op.name + " " + With(op.ms, "ms") +
                             (op.parallel ? " parallel\n" : "\n");
  if (op.zero_grad) {
    return "host " + With(op.gap_us + op.dispatch_us, "us") + "\n" + kernel;
  }
  return "host " + With(op.gap_us, "us") + "\nop aten::wrapper " +
         With(op.dispatch_us, "us") + " {\n" + kernel + "}\n";
}

std::string ProgramOf(const Loop& loop) {
  std::string text = "jitter host=0 device=0 loader=0 clock=0\n";
  text += "cores " + std::to_string(loop.cores) + "\n";
  text += "intra_op " + std::to_string(loop.threads) +
          " serial=" + With(loop.serial, "") + "\n";
  text += "steps " + std::to_string(loop.steps) +
          " warmup=" + std::to_string(loop.warmup) + "\n";
  if (loop.batch_ms > 0) {
    text += "loader workers=" + std::to_string(loop.workers) +
            " cpu=" + With(loop.batch_ms, "ms") + "\n";
  }
  text += loop.batch_ms > 0 ? "step {\nload\n" : "step {\n";
  text += "no_grad {\n";
  for (const LoopOp& op : loop.ops) text += OpText(op);
  return text + "}\n}\n";
}

}  // namespace

std::vector<LoopOp> Ops(int count, double ms) {
  std::vector<LoopOp> ops;
  for (int i = 0; i < count; ++i) {
    ops.push_back({.ms = ms});
    ops.push_back({.name = "aten::nonzero", .ms = 0.02, .parallel = false});
  }
  return ops;
}

LoopRun Simulate(const Loop& loop) {
  ProgramRun run = MustRunProgram(ProgramOf(loop));
  return {std::move(run.ranks[0]), run.mean_step_ms};
}

}  // namespace stepscope
