#include "xspace/writer/xspace_activity.h"

#include <stepscope/kernel_class.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "rows/row_fields.h"

namespace stepscope {
namespace {

bool Holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

char Side(MemoryKind kind) {
  if (kind == MemoryKind::kUnknown) return '?';
  const bool is_device = kind == MemoryKind::kDevice ||
                         kind == MemoryKind::kArray ||
                         kind == MemoryKind::kManaged;
  return is_device ? 'D' : 'H';
}

// XProf counts a kernel as 16-bit if its shape contains "half", so bfloat16 and
// float8 must contain it, too.
std::string_view ShapeType(std::string_view type) {
  if (type == "c10::Half") return "half";
  if (type == "c10::BFloat16") return "half/bf16";
  if (Holds(type, "Float8")) return "half/f8";
  return type;
}

std::string Triple(const std::array<int32_t, 3>& values) {
  return std::to_string(values[0]) + "," + std::to_string(values[1]) + "," +
         std::to_string(values[2]);
}

}  // namespace

// Prefers the recorded name to the kinds of memory. The kinds may be unknown,
// and they do not tell a copy between peers from one within a device.
std::string XCopyDirection(const Copy& copy, std::string_view name) {
  for (std::string_view known : {"HtoD", "DtoH", "DtoD", "PtoP"})
    if (Holds(name, known)) return std::string(known);
  if (Holds(name, "Host -> Device")) return "HtoD";
  if (Holds(name, "Device -> Host")) return "DtoH";
  if (Holds(name, "Device -> Device")) return "DtoD";
  const char from = Side(copy.source);
  const char to = Side(copy.destination);
  if (from == '?' || to == '?') return "?";
  return std::string(1, from) + "to" + to;
}

// XProf 2.24 finds num_bytes only as the first pair, ended by a newline.
std::string XCopyDetails(const Copy& copy) {
  std::string details =
      "num_bytes:" + std::to_string(std::max<int64_t>(copy.bytes, 0));
  details += "\nkind_src:";
  details += kMemoryKindTexts[static_cast<size_t>(copy.source)];
  details += " kind_dst:";
  details += kMemoryKindTexts[static_cast<size_t>(copy.destination)];
  details += copy.is_async ? " async:1" : " async:0";
  return details;
}

// XProf parses pairs "key:value" with a blank or a newline in between.
std::string XKernelDetails(const Kernel& kernel) {
  std::string details;
  // Unknown values are left out, because a 0 would look like a measured value.
  if (kernel.registers_per_thread >= 0)
    details += "regs:" + std::to_string(kernel.registers_per_thread) + " ";
  // Only the sum of static and dynamic shared memory is recorded. It is written
  // as dynamic; our reader adds the two.
  if (kernel.shared_memory_bytes >= 0) {
    details += "static_shared:0 dynamic_shared:" +
               std::to_string(kernel.shared_memory_bytes) + " ";
  }
  details += "grid:" + Triple(kernel.grid) + " block:" + Triple(kernel.block);
  if (kernel.occupancy_frac >= 0 && std::isfinite(kernel.occupancy_frac)) {
    char percent[32];
    std::snprintf(percent, sizeof(percent), " occ_pct:%.6g",
                  kernel.occupancy_frac * 100);
    details += percent;
  }
  return details;
}

std::string XKernelShape(const Trace& trace, const Kernel& kernel) {
  if (kernel.op != kNone && trace.ops()[kernel.op].inputs != kNone) {
    const OpInputs& inputs = trace.op_inputs()[trace.ops()[kernel.op].inputs];
    for (const Argument& argument : inputs.arguments) {
      if (argument.dims.empty()) continue;
      std::string shape = "(";
      shape += ShapeType(trace.name(argument.type));
      shape += '[';
      for (size_t i = 0; i < argument.dims.size(); ++i)
        shape += (i == 0 ? "" : ",") + std::to_string(argument.dims[i]);
      return shape + "])";
    }
  }
  const std::string_view name = trace.name(kernel.name);
  const bool is_16_bit = Is16Bit(TraitsOfKernel(name).precision) ||
                         Holds(name, "c10::Half") || Holds(name, "BFloat16") ||
                         Holds(name, "_hsh_");
  return is_16_bit ? "(half)" : "";
}

}  // namespace stepscope
