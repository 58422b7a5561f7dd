// The work that a GPU does for one of LibTorch's operators: a short list of
// kernels, copies, memsets and waits with the names and launch shapes of an
// A100. Only leaf operators are listed, so that nothing counts twice.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace stepscope {

enum class WorkKind : uint8_t {
  kKernel,
  kCopyToDevice,
  kCopyToHost,  // the host waits for it
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

// Returns an empty list for operators that only make views, and for unknown
// ones.
std::span<const OpWork> WorkOf(std::string_view op);

}  // namespace stepscope
