// What the name of a kernel says that PyTorch's compiler (Inductor) generated:
// the operators it was fused from.
//
// Inductor calls its kernels "triton_KIND_fused_OP_OP_NUMBER", and "cpp_fused_"
// and so on where it writes another language than Triton. The operators are
// those of the program before decomposition, sorted, each once
// (config.triton.descriptive_names "original_aten"; "torch" and
// "inductor_node" are read, too). They are joined by "_", which their names
// contain as well: the name is cut so that as many parts as possible are ATen
// operators, in ascending order. Where two readings remain, the longer operator
// is taken ("index_select" rather than "index" and "select").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct CompiledKernel {
  // "pointwise", "reduction", "persistent reduction", "template", "foreach",
  // "split scan", "C++", "CUTLASS", ...; "" if the name does not say.
  std::string_view kind;
  // "add", "native_batch_norm": parts of the name, each once, in its order.
  // Empty if it names none.
  std::vector<std::string_view> ops;
};

// Nothing for names of other kernels. The result points into `name`. Pure.
std::optional<CompiledKernel> ParseCompiledKernel(std::string_view name);

// "add + relu (compiled)", at most six operators; "pointwise (compiled)" where
// the name has none; "" for names of other kernels. Pure.
std::string FusedOpsInWords(std::string_view name);

}  // namespace stepscope
