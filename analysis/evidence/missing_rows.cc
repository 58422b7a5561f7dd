#include "evidence/missing_rows.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "ops/contains.h"

namespace stepscope {
namespace {

// How many names a report lists.
constexpr size_t kShown = 2;

bool IsSignOfGpu(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kBegins = {
      "aten::cudnn_",        "aten::_cudnn_", "aten::miopen_",
      "aten::record_stream", "nccl:",         "rccl:"};
  // CPU-only programs also call this op.
  if (name == "aten::cudnn_is_acceptable") return false;
  return std::ranges::any_of(
      kBegins, [&](std::string_view begin) { return name.starts_with(begin); });
}

struct Sign {
  std::string_view text, device;
};
// Namespaces of ops, and backends of process groups, that exist for only one
// kind of device.
constexpr std::array<Sign, 9> kNamespaces = {{{"npu::", "NPU"},
                                              {"hpu::", "HPU"},
                                              {"mtia::", "MTIA"},
                                              {"torch_ipex::", "XPU"},
                                              {"xpu::", "XPU"},
                                              {"torch_mlu::", "MLU"},
                                              {"mlu::", "MLU"},
                                              {"musa::", "MUSA"},
                                              {"xla::", "XLA device"}}};
constexpr std::array<Sign, 4> kBackends = {{{"hccl", "NPU or HPU"},
                                            {"xccl", "XPU"},
                                            {"cncl", "MLU"},
                                            {"mccl", "MTIA or MUSA"}}};

// Returns the name for a number of c10::DeviceType; empty for the CPU, for CUDA
// and HIP, and for devices that hold no data.
std::string_view DeviceOfType(int32_t type) {
  switch (type) {
    case 9:
      return "XLA device";
    case 12:
      return "XPU";
    case 13:
      return "MPS";
    case 15:
      return "HPU";
    case 18:
      return "IPU";
    case 19:
      return "MTIA";
    case 20:
      return "PrivateUse1 device";
    default:
      return "";
  }
}

bool IsOfOtherVendor(const Device& device) {
  return !device.vendor.empty() && device.vendor != "Nvidia" &&
         device.vendor != "AMD";
}

}  // namespace

// Needed because a run whose accelerator work was not recorded looks like a
// slow CPU program, and advice for the CPU would be wrong.
std::string UnseenAccelerator(const Trace& trace) {
  if (trace.has_device_work()) return "";
  const RunInfo& run = trace.run();
  // A machine lists its devices even if they are not used.
  const bool called = !trace.runtime_calls().empty() ||
                      std::ranges::any_of(trace.losses(), [](const Loss& loss) {
                        return loss.name == "unread-device-rows";
                      });
  const auto other = std::ranges::find_if(run.devices, &IsOfOtherVendor);
  if (called && other != run.devices.end()) return other->name;
  for (const Sign& sign : kBackends) {
    if (Contains(run.backend, sign.text)) {
      return std::string(sign.device);
    }
  }
  for (const Allocation& row : trace.allocations()) {
    const std::string_view device = DeviceOfType(row.device_type);
    if (!device.empty()) return std::string(device);
  }
  std::vector<bool> seen(trace.name_count());
  for (const Op& op : trace.ops()) {
    if (seen[op.name]) continue;
    seen[op.name] = true;
    for (const Sign& sign : kNamespaces) {
      if (trace.name(op.name).starts_with(sign.text)) {
        return std::string(sign.device);
      }
    }
  }
  return "";
}

std::string SignsOfGpu(const Trace& trace) {
  std::vector<int8_t> known(trace.name_count(), -1);
  std::string signs;
  size_t shown = 0;
  const auto look = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (known[row.name] >= 0 || shown == kShown) continue;
      known[row.name] = IsSignOfGpu(trace.name(row.name));
      if (!known[row.name]) continue;
      signs += (signs.empty() ? "" : ", ") + std::string(trace.name(row.name));
      ++shown;
    }
  };
  look(trace.ops());
  look(trace.ranges());
  return signs;
}

bool CollectorDidNotRun(const Loss& loss) {
  return loss.severity != Severity::kError &&
         (Contains(loss.name, "unavailable") ||
          Contains(loss.name, "not-started"));
}

bool MayLackOps(const Trace& trace) {
  return std::ranges::any_of(trace.losses(), [](const Loss& loss) {
    // Begin and end events of another program's file may be ops.
    if (loss.severity == Severity::kNote) return loss.name == "unpaired-events";
    return !CollectorDidNotRun(loss) &&
           !IsAnyOf(loss.name,
                    {"memory-hook-lost", "memory-hook-taken", "stacks-differ",
                     "stacks-unnamed", "step-threads", "training-thread",
                     "unread-device-rows", "unreadable-step-numbers"});
  });
}

}  // namespace stepscope
