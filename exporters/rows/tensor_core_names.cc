#include "rows/tensor_core_names.h"

#include <stepscope/kernel_class.h>

#include <algorithm>

namespace stepscope {
namespace {

bool HoldsOneOf(std::string_view text, const auto& parts) {
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](std::string_view part) {
                       return text.find(part) != std::string_view::npos;
                     });
}

// Substrings that both viewers look for (torch-tb-profiler 0.4.3, XProf 2.24).
// Parts that only one of them knows are left out: a name must be recognised by
// both.
constexpr std::string_view kKnown[] = {
    "16816",
    "c1688",
    "conv1x1",
    "conv2d_c1_k1",
    "direct_group",
    "dgrad_1x1_stride_2x2",
    "h1688",
    "first_layer_wgrad_kernel",
    "h884",
    "hmma",
    "i8816",
    "s1688",
    "s884",
    "xmma_gemm",
    "xmma_sparse_",
    "xmma_implicit_gemm",
    "xmma_warp_specialized_implicit_gemm",
};

}  // namespace

std::string NameForViewers(std::string_view kernel) {
  std::string name(kernel);
  const TensorCores used = TraitsOfKernel(kernel).tensor_cores;
  if (used == TensorCores::kYes && !HoldsOneOf(kernel, kKnown)) {
    name += " [hmma]";
  }
  if (used != TensorCores::kNo) return name;
  constexpr std::string_view kXmma = "xmma_";
  for (size_t at = name.find(kXmma); at != std::string::npos;
       at = name.find(kXmma, at + 1)) {
    if (HoldsOneOf(std::string_view(name).substr(at), kKnown)) {
      name[at + kXmma.size() - 1] = '-';
    }
  }
  return name;
}

}  // namespace stepscope
