// What a GPU would be asked to do for one of LibTorch's operators: a short list
// of kernels, copies, memsets and waits, with the names and launch shapes that
// an A100 shows. Only leaf operators are listed, so that nothing is counted
// twice.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace stepscope {

enum class WorkKind : uint8_t {
  kKernel,
  kCopyToDevice,
  kCopyToHost,  // and the host waits for it
  kMemset
};

struct OpWork {
  WorkKind kind = WorkKind::kKernel;
  const char* kernel = nullptr;
  double share = 1;  // of the operator's time
  int32_t block = 128;
  uint16_t registers = 32;
  int32_t shared_bytes = 0;
};

// Empty for operators that only look at their tensors, and for unknown ones.
std::span<const OpWork> WorkOf(std::string_view op);

}  // namespace stepscope
