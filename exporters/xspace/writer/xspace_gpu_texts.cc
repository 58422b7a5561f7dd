#include "xspace/writer/xspace_gpu_texts.h"

#include <bit>
#include <string>

#include "rows/tensor_core_names.h"
#include "xspace/writer/xspace_activity.h"

namespace stepscope {

// XLA writes a context as "$$5".
int64_t XGpuTexts::Context(int32_t context) {
  int64_t& id = contexts_[context];
  if (id == 0) id = names_.Text("$$" + std::to_string(context));
  return id;
}

int64_t XGpuTexts::Instruction(RowId instruction) {
  int64_t& id = instructions_[instruction];
  if (id == 0) id = names_.Text(program_.instructions()[instruction].name);
  return id;
}

int64_t XGpuTexts::KernelName(NameId name) {
  const auto [it, added] = kernel_names_.try_emplace(name, 0);
  if (added) {
    const std::string_view text = trace_.name(name);
    const std::string seen = NameForViewers(text);
    it->second = seen == text ? names_.Event(name) : names_.Event(seen, text);
  }
  return it->second;
}

// Leaves out the occupancy, because it mostly follows from the rest. If it does
// not, operator== tells the launches apart.
size_t XGpuTexts::LaunchShape::Hash::operator()(
    const LaunchShape& shape) const {
  uint64_t hash = 0;
  const auto mix = [&](uint32_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  };
  for (int32_t value : shape.grid) mix(static_cast<uint32_t>(value));
  for (int32_t value : shape.block) mix(static_cast<uint32_t>(value));
  mix(static_cast<uint32_t>(shape.registers));
  mix(static_cast<uint32_t>(shape.shared_bytes));
  return hash;
}

int64_t XGpuTexts::KernelDetails(const Kernel& kernel) {
  int64_t& id =
      details_[{kernel.grid, kernel.block, kernel.registers_per_thread,
                kernel.shared_memory_bytes,
                std::bit_cast<uint32_t>(kernel.occupancy_frac)}];
  if (id == 0) id = names_.Text(XKernelDetails(kernel));
  return id;
}

int64_t XGpuTexts::Shape(const Kernel& kernel) {
  const RowId inputs =
      kernel.op == kNone ? kNone : trace_.ops()[kernel.op].inputs;
  // The shape depends only on inputs and name, and launches in a loop repeat
  // both.
  const auto [it, added] =
      shapes_.try_emplace(uint64_t{inputs} << 32 | kernel.name, 0);
  if (added) {
    const std::string shape = XKernelShape(trace_, kernel);
    if (!shape.empty()) it->second = names_.Text(shape);
  }
  return it->second;
}

int64_t XGpuTexts::ProgramName() {
  if (program_name_ == 0) program_name_ = names_.Text(kXProgramName);
  return program_name_;
}

}  // namespace stepscope
