#include "ops/op_traits.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <array>

#include "ops/contains.h"

namespace stepscope {
namespace {

// Ops that make views, ask for sizes or allocate without computing. "to",
// "contiguous" and "zeros" are listed because any work they do happens in a
// child op (copy_, zero_), which is counted itself.
constexpr auto kBookkeeping =
    std::to_array<std::string_view>({"alias",        "as_strided",
                                     "as_strided_",  "chunk",
                                     "contiguous",   "detach",
                                     "detach_",      "empty",
                                     "empty_like",   "empty_strided",
                                     "expand",       "expand_as",
                                     "flatten",      "is_nonzero",
                                     "item",         "lift_fresh",
                                     "narrow",       "new_empty",
                                     "numpy_T",      "ones_like",
                                     "permute",      "requires_grad_",
                                     "reshape",      "reshape_as",
                                     "resize_",      "resize_as_",
                                     "resolve_conj", "resolve_neg",
                                     "result_type",  "select",
                                     "set_",         "size",
                                     "slice",        "split",
                                     "squeeze",      "squeeze_",
                                     "stride",       "t",
                                     "to",           "transpose",
                                     "unbind",       "unflatten",
                                     "unsqueeze",    "unsqueeze_",
                                     "view",         "view_as",
                                     "zeros",        "zeros_like",
                                     "new_zeros",    "_reshape_alias",
                                     "_unsafe_view"});

// Ops that compute in their own body although they also call other ops, for
// example to copy an input into the layout that the kernel needs. Names of ATen
// as of torch 2.x.
constexpr auto kKernels = std::to_array<std::string_view>(
    {"addmm",
     "baddbmm",
     "bmm",
     "convolution_backward",
     "mkldnn_convolution",
     "mkldnn_convolution_backward",
     "mm",
     "mkldnn_linear",
     "native_batch_norm",
     "native_batch_norm_backward",
     "native_layer_norm",
     "native_layer_norm_backward",
     "slow_conv2d_forward",
     "slow_conv2d_backward",
     "thnn_conv2d",
     "_slow_conv2d_forward",
     "_slow_conv2d_backward",
     "_thnn_fused_lstm_cell",
     "_scaled_dot_product_flash_attention_for_cpu",
     "_scaled_dot_product_flash_attention_for_cpu_backward"});

// Kernels that ATen and oneDNN split over the intra-op thread pool. An op
// matches by its whole name, or by its name without a trailing "_",
// "_backward" or "_backward_data".
constexpr auto kParallel = std::to_array<std::string_view>(
    {"_adaptive_avg_pool2d",
     "_embedding_bag",
     "_foreach_add",
     "_foreach_mul",
     "_fused_adamw",
     "_fused_sgd",
     "_log_softmax",
     "_softmax",
     "abs",
     "adaptive_avg_pool2d",
     "add",
     "addcdiv",
     "addcmul",
     "addmm",
     "avg_pool2d",
     "baddbmm",
     "bmm",
     "cat",
     "clamp",
     "clamp_min",
     "clone",
     "convolution",
     "convolution_overrideable",
     "copy",
     "div",
     "dot",
     "elu",
     "embedding",
     "embedding_dense",
     "exp",
     "fill",
     "gather",
     "gelu",
     "hardtanh",
     "index_select",
     "leaky_relu",
     "log",
     "max_pool2d_with_indices",
     "mean",
     "mkldnn_convolution",
     "mkldnn_linear",
     "mkldnn_reorder_conv2d_weight",
     "mm",
     "mul",
     "native_batch_norm",
     "native_group_norm",
     "native_layer_norm",
     "neg",
     "pow",
     "relu",
     "rsqrt",
     "rsub",
     "scatter_add",
     "sigmoid",
     "silu",
     "slow_conv2d_forward",
     "_slow_conv2d_forward",
     "_slow_conv2d",
     "sqrt",
     "sub",
     "sum",
     "tanh",
     "thnn_conv2d",
     "threshold",
     "upsample_bilinear2d",
     "upsample_nearest2d",
     "where",
     "zero",
     "_scaled_dot_product_flash_attention_for_cpu"});

// Convolutions, matrix products and attention, the ops that make up a forward
// pass.
constexpr auto kMatmul = std::to_array<std::string_view>(
    {"addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "convolution",
     "_convolution", "convolution_backward", "cudnn_convolution", "linear",
     "matmul", "miopen_convolution", "mkldnn_convolution", "mm",
     "scaled_dot_product_attention", "slow_conv2d_forward",
     "_slow_conv2d_forward", "thnn_conv2d"});

// What the optimizers of LibTorch call per parameter (SGD, Adam, AdamW,
// RMSprop, Adagrad), besides ops on lists of parameters.
constexpr auto kUpdates = std::to_array<std::string_view>(
    {"aten::add_", "aten::mul_", "aten::addcdiv_", "aten::addcmul_",
     "aten::sub_", "aten::lerp_", "aten::sqrt", "aten::div_", "aten::div",
     "aten::add", "aten::copy_", "aten::mul"});

template <size_t kSize>
bool IsIn(const std::array<std::string_view, kSize>& list,
          std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool IsParallel(std::string_view name) {
  if (IsIn(kParallel, name)) return true;
  if (name.ends_with("_backward_data")) name.remove_suffix(14);
  if (name.ends_with("_backward")) name.remove_suffix(9);
  if (name.ends_with("_")) name.remove_suffix(1);
  return IsIn(kParallel, name);
}

}  // namespace

OpTraits TraitsOf(std::string_view name) {
  OpTraits traits{.kind = ClassOfOp(name)};
  traits.communication = name.starts_with("nccl:") ||
                         name.starts_with("gloo:") ||
                         traits.kind == KernelClass::kCommunication;
  // The engine wraps each node in "autograd::engine::evaluate_function: ...";
  // only the node itself counts, so that each gradient is counted once.
  traits.accumulate_grad = name == "torch::autograd::AccumulateGrad";
  traits.update = IsIn(kUpdates, name) || name.starts_with("aten::_foreach_") ||
                  name.starts_with("aten::_fused_");
  if (name.starts_with("aten::")) name.remove_prefix(6);
  traits.bookkeeping = IsIn(kBookkeeping, name);
  traits.kernel = IsIn(kKernels, name);
  traits.parallel = IsParallel(name);
  traits.matmul = IsIn(kMatmul, name);
  traits.zeroing = name == "zero_" || name == "_foreach_zero_";
  traits.adding = name == "add_" || name == "add";
  return traits;
}

bool IsCompiling(std::string_view name) {
  return name.ends_with("(dynamo_timed)") ||
         Contains(name, "torch/_dynamo/convert_frame.py");
}

// Walks up, because AccumulateGrad and the backward formulas call ordinary
// operators, whose names do not show that they belong to the backward pass.
RowId NodeAround(const Trace& trace, RowId op) {
  while (op != kNone && trace.ops()[op].kind != OpKind::kBackward) {
    op = trace.ops()[op].parent;
  }
  return op;
}

namespace {

// True if anomaly mode is on, which shows as backward nodes that search for
// NaN. Each op then records a stack trace in its own time, which may take long.
bool KeepsStackTraces(const Trace& trace) {
  return std::ranges::any_of(trace.ops(), [&](const Op& op) {
    return op.parent != kNone &&
           trace.ops()[op.parent].kind == OpKind::kBackward &&
           trace.name(op.name) == "aten::isnan";
  });
}

}  // namespace

OpTree::OpTree(const Trace& trace) : trace_(trace) {
  traits_.resize(trace.name_count());
  by_name_.resize(trace.name_count());
  by_thread_.resize(trace.threads().size());
  std::vector<bool> runs_backward(trace.threads().size());
  const std::span<const Op> ops = trace.ops();
  in_backward_.resize(ops.size());
  for (RowId row = 0; row < ops.size(); ++row) {
    const RowId parent = ops[row].parent;
    in_backward_[row] = ops[row].kind == OpKind::kBackward ||
                        (parent != kNone && in_backward_[parent]);
    std::vector<RowId>& same_name = by_name_[ops[row].name];
    if (same_name.empty()) {
      const std::string_view name = trace.name(ops[row].name);
      traits_[ops[row].name] = TraitsOf(name);
      names_.emplace(name, ops[row].name);
    }
    same_name.push_back(row);
    const RowId thread = ops[row].thread;
    if (thread == kNone) continue;
    by_thread_[thread].push_back(row);
    if (ops[row].kind == OpKind::kBackward) runs_backward[thread] = true;
  }
  for (RowId thread = 0; thread < runs_backward.size(); ++thread) {
    if (runs_backward[thread]) backward_threads_.push_back(thread);
  }
  // Outer ops come first in the table, so this backward loop meets children
  // before their parents. work_below: something below the op does more than
  // bookkeeping, so the op's own time is dispatching.
  std::vector<bool> work_below(ops.size());
  const bool keeps_stacks = KeepsStackTraces(trace);
  // Each op's own time, less what calling its children can cost.
  std::vector<int64_t> own_ns(ops.size());
  computes_.resize(ops.size());
  for (RowId row = static_cast<RowId>(ops.size()); row-- > 0;) {
    const Op& op = ops[row];
    const OpTraits& name = traits_[op.name];
    const int64_t length = op.end_ns - op.begin_ns;
    computes_[row] = op.kind == OpKind::kOperator &&
                     (!work_below[row] || name.kernel ||
                      (!keeps_stacks && own_ns[row] + length > kOpCallNs));
    if (op.parent == kNone) continue;
    // Each call may cost its caller kOpCallNs. Own time beyond all these calls,
    // and beyond kOpCallNs for the op itself, is computing.
    own_ns[op.parent] -= length + kOpCallNs;
    if (work_below[row] || !name.bookkeeping) {
      work_below[op.parent] = true;
    }
  }
}

std::span<const RowId> OpTree::of_thread(RowId thread, Span window) const {
  const std::span<const RowId> rows = of_thread(thread);
  const auto begin_ns = [&](RowId row) { return trace_.ops()[row].begin_ns; };
  const auto first =
      std::ranges::lower_bound(rows, window.begin_ns, {}, begin_ns);
  return {first, std::ranges::lower_bound(first, rows.end(), window.end_ns, {},
                                          begin_ns)};
}

std::span<const RowId> OpTree::inside(RowId op) const {
  const RowId thread = trace_.ops()[op].thread;
  if (thread == kNone) return {};
  const std::span<const RowId> rows = by_thread_[thread];
  // The rows of a thread are ascending: the table is in time order, outer ops
  // first.
  const auto first = std::ranges::lower_bound(rows, op);
  return {first, std::ranges::lower_bound(
                     first, rows.end(), trace_.ops()[op].end_ns, {},
                     [&](RowId row) { return trace_.ops()[row].begin_ns; })};
}

std::span<const RowId> OpTree::named(std::string_view name) const {
  const auto known = names_.find(name);
  if (known == names_.end()) return {};
  return by_name_[known->second];
}

}  // namespace stepscope
