// The functions that NVTX calls when a program names domains, strings, threads
// or streams. They fill NvtxNames.
#pragma once

#define NVTX_NO_IMPL  // only the types: these are the callees
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <span>

namespace stepscope {

// The functions of one NVTX module, by callback id.
using NvtxTable = std::span<NvtxFunctionPointer* const>;

template <typename Function>
void PutHook(NvtxTable table, size_t id, Function* function) {
  if (id < table.size() && table[id] != nullptr) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }
}

// Installs the hooks. A table is empty if the binary's NVTX lacks that module.
void PutNameHooks(NvtxTable core, NvtxTable core2, NvtxTable cuda,
                  NvtxTable cudart) noexcept;

}  // namespace stepscope
