#include "fakes/op_work.h"

#include <algorithm>
#include <iterator>

namespace stepscope {
namespace {

constexpr OpWork kConvolution[] = {
    {.kernel = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_"
               "nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_"
               "execute_kernel__5x_cudnn",
     .block = 128,
     .registers = 230,
     .shared_bytes = 80 << 10}};
constexpr OpWork kConvolutionBackward[] = {
    {.kernel = "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_"
               "nhwc_tilesize128x64x32_stage3_warpsize2x2x1_g1_tensor16x8x8_"
               "execute_kernel__5x_cudnn",
     .share = 0.5,
     .block = 128,
     .registers = 166,
     .shared_bytes = 72 << 10},
    {.kernel = "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_"
               "nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_"
               "tensor16x8x8_kernel_cudnn",
     .share = 0.5,
     .block = 128,
     .registers = 240,
     .shared_bytes = 64 << 10}};
constexpr OpWork kMatmul[] = {{.kernel = "ampere_sgemm_64x32_sliced1x4_tn",
                               .block = 128,
                               .registers = 122,
                               .shared_bytes = 49152}};
constexpr OpWork kNormForward[] = {
    {.kernel = "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, "
               "14>(cudnn::bn_fw_tr_1C11_args<float>)",
     .block = 512,
     .registers = 42,
     .shared_bytes = 4096}};
constexpr OpWork kNormBackward[] = {
    {.kernel = "void cudnn::bn_bw_1C11_singleread<float, 512, true, 1, 2, "
               "14>(float, float, float, float, cudnnTensorStruct)",
     .block = 512,
     .registers = 56,
     .shared_bytes = 4096}};
constexpr OpWork kElementwise[] = {
    {.kernel = "void at::native::vectorized_elementwise_kernel<4, "
               "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
               ">(int, at::native::CUDAFunctor_add<float>, std::array<char*, "
               "3ul>)",
     .registers = 26}};
constexpr OpWork kClamp[] = {
    {.kernel = "void at::native::vectorized_elementwise_kernel<4, "
               "at::native::(anonymous namespace)::launch_clamp_scalar("
               "at::TensorIteratorBase&, c10::Scalar, c10::Scalar)::{lambda()"
               "#1}, std::array<char*, 2ul> >(int)",
     .registers = 24}};
constexpr OpWork kPool[] = {
    {.kernel = "void at::native::(anonymous namespace)::max_pool_forward_nchw"
               "<float>(int, float const*, long, long)",
     .block = 256,
     .registers = 40}};
constexpr OpWork kPoolBackward[] = {
    {.kernel = "void at::native::(anonymous namespace)::max_pool_backward_nchw"
               "<float, float>(float const*, long const*, int)",
     .block = 256,
     .registers = 38}};
constexpr OpWork kReduction[] = {
    {.kernel = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<"
               "float, at::native::func_wrapper_t<float>, unsigned int, float, "
               "4> >(at::native::ReduceOp<float>)",
     .block = 512,
     .registers = 32,
     .shared_bytes = 16}};
constexpr OpWork kSoftmax[] = {
    {.kernel = "void (anonymous namespace)::softmax_warp_forward<float, float, "
               "float, 10, true, false>(float*, float const*, int, int, int)",
     .registers = 34}};
constexpr OpWork kLoss[] = {
    {.kernel = "void at::native::(anonymous namespace)::"
               "nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>("
               "float*, float*, float*, long*)",
     .block = 32,
     .registers = 30}};
constexpr OpWork kOptimizer[] = {
    {.kernel = "void at::native::(anonymous namespace)::"
               "multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
               "TensorListMetadata<3>, at::native::(anonymous namespace)::"
               "BinaryOpListAlphaFunctor<float, 3, 2, 2>, std::plus<float>, "
               "float>(float)",
     .block = 512,
     .registers = 48}};
constexpr OpWork kToDevice[] = {{.kind = WorkKind::kCopyToDevice}};
constexpr OpWork kToHost[] = {{.kind = WorkKind::kCopyToHost}};
constexpr OpWork kZero[] = {{.kind = WorkKind::kMemset}};

struct Entry {
  std::string_view op;
  std::span<const OpWork> work;
};
constexpr Entry kEntries[] = {
    {"aten::mkldnn_convolution", kConvolution},
    {"aten::_slow_conv2d_forward", kConvolution},
    {"aten::convolution_backward", kConvolutionBackward},
    {"aten::addmm", kMatmul},
    {"aten::mm", kMatmul},
    {"aten::native_batch_norm", kNormForward},
    {"aten::native_batch_norm_backward", kNormBackward},
    {"aten::add", kElementwise},
    {"aten::sub", kElementwise},
    {"aten::mul", kElementwise},
    {"aten::div_", kElementwise},
    {"aten::threshold_backward", kElementwise},
    {"aten::clamp_min", kClamp},
    {"aten::clamp_min_", kClamp},
    {"aten::max_pool2d_with_indices", kPool},
    {"aten::max_pool2d_with_indices_backward", kPoolBackward},
    {"aten::mean", kReduction},
    {"aten::sum", kReduction},
    {"aten::_log_softmax", kSoftmax},
    {"aten::_log_softmax_backward_data", kSoftmax},
    {"aten::nll_loss_forward", kLoss},
    {"aten::nll_loss_backward", kLoss},
    {"aten::add_", kOptimizer},
    {"aten::mul_", kOptimizer},
    {"aten::zero_", kZero},
    {"aten::to", kToDevice},
    {"aten::_local_scalar_dense", kToHost},
};

}  // namespace

std::span<const OpWork> WorkOf(std::string_view op) {
  const auto* const found =
      std::find_if(std::begin(kEntries), std::end(kEntries),
                   [&](const Entry& entry) { return entry.op == op; });
  if (found == std::end(kEntries)) return {};
  return found->work;
}

}  // namespace stepscope
