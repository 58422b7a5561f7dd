// The functions NVTX calls when a program names things; they fill NvtxNames.
#pragma once

#define NVTX_NO_IMPL  // the types alone: this is the other side of the calls
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <span>

namespace stepscope {

// One module's functions, by NVTX's callback ids.
using NvtxTable = std::span<NvtxFunctionPointer* const>;

template <typename Function>
void PutHook(NvtxTable table, size_t id, Function* function) {
  if (id < table.size() && table[id] != nullptr) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  }
}

// The tables may be empty, where a binary's NVTX has no such module.
void PutNameHooks(NvtxTable core, NvtxTable core2, NvtxTable cuda,
                  NvtxTable cudart) noexcept;

}  // namespace stepscope
