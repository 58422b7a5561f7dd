#include <gtest/gtest.h>
#include <stepscope/kernel_class.h>

#include <set>
#include <string>

namespace stepscope::kernel_class_test {
namespace {

struct Known {
  const char* name;
  KernelClass kind;
  TensorCores tensor_cores;
  Precision precision;
};

// Names as profilers print them, one of each family.
constexpr Known kKnown[] = {
    // cuBLAS and CUTLASS, Volta to Blackwell.
    {"volta_sgemm_64x64_nt", KernelClass::kMatmul, TensorCores::kNo,
     Precision::kFp32},
    {"volta_h884gemm_128x64_ldg8_nn", KernelClass::kMatmul, TensorCores::kYes,
     Precision::kFp16},
    {"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp16},
    {"turing_s1688gemm_fp16_128x128_ldg8_f2f_nn", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp16},
    {"ampere_sgemm_128x128_tn", KernelClass::kMatmul, TensorCores::kNo,
     Precision::kFp32},
    {"ampere_dgemm_64x64_nn", KernelClass::kMatmul, TensorCores::kNo,
     Precision::kFp64},
    {"ampere_fp16_sgemm_fp16_32x128_tn", KernelClass::kMatmul, TensorCores::kNo,
     Precision::kFp16},
    {"ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp16},
    {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>"
     "(cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4::Params)",
     KernelClass::kMatmul, TensorCores::kYes, Precision::kTf32},
    {"void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>"
     "(cutlass_80_simt_sgemm_128x32_8x5_nn_align1::Params)",
     KernelClass::kMatmul, TensorCores::kNo, Precision::kFp32},
    {"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_"
     "warpsize1x2x1_ffma_aligna4_alignc4_execute_kernel__51_cublas",
     KernelClass::kMatmul, TensorCores::kNo, Precision::kFp32},
    {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_"
     "warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
     KernelClass::kMatmul, TensorCores::kYes, Precision::kBf16},
    {"sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_cublas",
     KernelClass::kMatmul, TensorCores::kYes, Precision::kFp8},
    {"nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NTN", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kBf16},
    {"nvjet_hsh_64x8_64x16_4x1_v_bz_TNN", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp16},
    {"nvjet_sm100_qqtst_128x128_128x6_2x1_h_bz_TNT", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp8},
    {"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, "
     "2, false, false, cublasGemvParams<...> >(cublasGemvParams<...>, float)",
     KernelClass::kMatmul, TensorCores::kNo, Precision::kFp32},
    // cuDNN.
    {"volta_scudnn_128x128_stridedB_splitK_small_nn_v1",
     KernelClass::kConvolution, TensorCores::kNo, Precision::kFp32},
    {"volta_fp16_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1",
     KernelClass::kConvolution, TensorCores::kYes, Precision::kFp16},
    {"void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, "
     "int, int, float const*, int, float const*, int, float*, "
     "kernel_grad_params, unsigned long long)",
     KernelClass::kConvolution, TensorCores::kNo, Precision::kFp32},
    {"sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_"
     "tilesize128x128x16",
     KernelClass::kConvolution, TensorCores::kYes, Precision::kTf32},
    {"void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_"
     "tf32_64x128_32x3_nhwc_align4>(Params)",
     KernelClass::kConvolution, TensorCores::kYes, Precision::kTf32},
    {"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, "
     "(cudnnKernelDataType_t)2>(cudnn::ops::nchw2nhwc_params_t<float>)",
     KernelClass::kLayout, TensorCores::kNo, Precision::kFp32},
    {"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(x)",
     KernelClass::kNormalisation, TensorCores::kNo, Precision::kFp32},
    {"void cudnn::bn_fw_inf_1C11_kernel_NCHW<__half, float, true, 1>(x)",
     KernelClass::kNormalisation, TensorCores::kNo, Precision::kFp16},
    // Attention.
    {"void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_"
     "traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(x)",
     KernelClass::kAttention, TensorCores::kYes, Precision::kBf16},
    {"fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::"
     "AttentionKernel<cutlass::half_t>)",
     KernelClass::kAttention, TensorCores::kYes, Precision::kFp16},
    {"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3x64",
     KernelClass::kAttention, TensorCores::kYes, Precision::kFp16},
    {"kernel_unified_attention_2d", KernelClass::kAttention,
     TensorCores::kUnknown, Precision::kUnknown},
    // ATen.
    {"void at::native::vectorized_elementwise_kernel<4, "
     "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",
     KernelClass::kElementwise, TensorCores::kNo, Precision::kFp32},
    {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, "
     "at::native::MeanOps<double> > >(x)",
     KernelClass::kReduction, TensorCores::kNo, Precision::kFp64},
    {"void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, "
     "unsigned int, 2, 128, 1>(float*)",
     KernelClass::kCopy, TensorCores::kNo, Precision::kFp32},
    {"void multi_tensor_apply_kernel<TensorListMetadata<4>, "
     "AdamFunctor<float>, float>(int)",
     KernelClass::kOptimizer, TensorCores::kNo, Precision::kFp32},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
     "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
     "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >(x)",
     KernelClass::kOptimizer, TensorCores::kNo, Precision::kFp32},
    // The doubles are hyperparameters and bounds of random numbers, not the
    // data.
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
     "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
     "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
     "(at::native::(anonymous namespace)::ADAM_MODE)1, false>, float const*, "
     "double, double, double, double, double, bool>(x)",
     KernelClass::kOptimizer, TensorCores::kNo, Precision::kFp32},
    {"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
     "at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
     "at::native::(anonymous namespace)::FusedAdamMathFunctor<double, 4> >(x)",
     KernelClass::kOptimizer, TensorCores::kNo, Precision::kFp64},
    {"void at::native::(anonymous namespace)::"
     "distribution_elementwise_grid_stride_kernel<float, 4, "
     "normal_kernel<at::CUDAGeneratorImpl*>(at::TensorBase const&, double, "
     "double, at::CUDAGeneratorImpl*)::{lambda()#1}::operator()() const::"
     "{lambda()#2}>(x)",
     KernelClass::kElementwise, TensorCores::kNo, Precision::kFp32},
    {"void at::native::vectorized_elementwise_kernel<4, "
     "at::native::sqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::"
     "operator()() const::{lambda(double)#1}, at::detail::Array<char*, 2> >(x)",
     KernelClass::kElementwise, TensorCores::kNo, Precision::kFp64},
    // Compilers.
    {"triton_poi_fused_addmm_gelu_view_26", KernelClass::kElementwise,
     TensorCores::kNo, Precision::kUnknown},
    {"triton_red_fused_add_native_layer_norm_36", KernelClass::kNormalisation,
     TensorCores::kNo, Precision::kUnknown},
    {"triton_poi_fused__scaled_dot_product_efficient_attention_clone_4",
     KernelClass::kElementwise, TensorCores::kNo, Precision::kUnknown},
    {"triton_per_fused__scaled_dot_product_flash_attention_sum_5",
     KernelClass::kReduction, TensorCores::kNo, Precision::kUnknown},
    {"triton_tem_fused_mm_3", KernelClass::kMatmul, TensorCores::kYes,
     Precision::kUnknown},
    // ROCm.
    {"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1_SN_"
     "LDSB1",
     KernelClass::kMatmul, TensorCores::kYes, Precision::kBf16},
    {"Cijk_Ailk_Bjlk_SB_MT64x64x16_SE_K1", KernelClass::kMatmul,
     TensorCores::kNo, Precision::kFp32},
    {"Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", KernelClass::kMatmul,
     TensorCores::kYes, Precision::kFp16},
    {"igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8",
     KernelClass::kConvolution, TensorCores::kYes, Precision::kBf16},
    {"_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weight",
     KernelClass::kMatmul, TensorCores::kYes, Precision::kUnknown},
    {"batched_transpose_32x32_half", KernelClass::kLayout, TensorCores::kNo,
     Precision::kFp16},
    {"MIOpenBatchNormFwdTrainSpatial", KernelClass::kNormalisation,
     TensorCores::kNo, Precision::kUnknown},
    // Collectives.
    {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kFp32},
    {"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kUnknown},
    {"mscclKernel_Sum_half_LL128", KernelClass::kCommunication,
     TensorCores::kNo, Precision::kFp16},
    {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, "
     "vllm::RankSignals, vllm::Signal*, __nv_bfloat16*, int, int)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kBf16},
    {"_ZN5aiter26cross_device_reduce_2stageIDF16_Li8EEEvPNS_8RankDataE",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kFp16},
    {"void c10d::symmetric_memory::(anonymous namespace)::"
     "multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, "
     "c10::BFloat16*, unsigned long, unsigned int**)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kBf16},
    {"void flashinfer::trtllm_allreduce_fusion::"
     "allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_"
     "fusion::AllReduceFusionPattern)1, __half, 8>()",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kFp16},
    {"void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>()",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kFp16},
    {"void deep_ep::internode_ll::combine<false, 3, 7168, 9>(void*, void*)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kUnknown},
    {"void nvshmemi_transfer_rma_p<int, (threadgroup_t)0>(int*, int, int)",
     KernelClass::kCommunication, TensorCores::kNo, Precision::kUnknown},
};

// Names of fused ops, of products that send their result, and of reductions
// among the threads of one kernel.
TEST(IsCollectiveKernelTest, LeavesComputingAlone) {
  for (const char* name :
       {"triton_poi_fused__to_copy_all_gather_into_tensor_wait_tensor_3",
        "allgather_gemm_kernel",
        "void flux::GemmReduceScatter_gemm_rs<float>()",
        "void oneflow::softmax::SoftmaxWarpAllReduce<float>()",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()",
        "void at::native::scatter_gather_elementwise_kernel<128, 4>()"}) {
    EXPECT_FALSE(IsCollectiveKernel(name)) << name;
  }
}

TEST(TraitsOfKernelTest, KnowsEveryFamily) {
  for (const Known& known : kKnown) {
    const KernelTraits traits = TraitsOfKernel(known.name);
    EXPECT_STREQ(KernelClassName(traits.kind), KernelClassName(known.kind))
        << known.name;
    EXPECT_EQ(traits.tensor_cores, known.tensor_cores) << known.name;
    EXPECT_EQ(traits.precision, known.precision) << known.name;
  }
}

TEST(TraitsOfKernelTest, IsCaseBlind) {
  for (const Known& known : kKnown) {
    std::string shouted = known.name;
    for (char& c : shouted) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(TraitsOfKernel(shouted), TraitsOfKernel(known.name)) << shouted;
  }
}

TEST(TraitsOfKernelTest, SaysUnknownWhereTheNameDoesNotTell) {
  for (const char* name :
       {"", "kernel", "void my_kernel<float>(float*)", "add_kernel_v2",
        "sage_quant_kernel", "void at::native::vectorized_gather_kernel<16>()",
        "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)"}) {
    EXPECT_EQ(TraitsOfKernel(name).kind, KernelClass::kUnknown) << name;
    EXPECT_EQ(TraitsOfKernel(name).tensor_cores, TensorCores::kUnknown) << name;
  }
  EXPECT_EQ(TraitsOfKernel("_matmul_ogs_NNT_bf16xbf16xmxfp4").tensor_cores,
            TensorCores::kUnknown);
}

TEST(TraitsOfKernelTest, DigitsOfAHashAreNoInstruction) {
  EXPECT_NE(TraitsOfKernel("fused_gemm_16884710714").tensor_cores,
            TensorCores::kYes);
  EXPECT_EQ(TraitsOfKernel("fused__autocast_to__16747471071299466860").kind,
            KernelClass::kElementwise);
}

TEST(TraitsOfKernelTest, ALibraryNamedAfterGemmIsNoGemm) {
  EXPECT_EQ(
      TraitsOfKernel("void fbgemm_gpu::permute_2D_lengths_kernel<int>()").kind,
      KernelClass::kUnknown);
}

TEST(TraitsOfKernelTest, SeesNarrowLoads) {
  EXPECT_TRUE(TraitsOfKernel("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_"
                             "tn_align1")
                  .narrow);
  EXPECT_FALSE(
      TraitsOfKernel("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4")
          .narrow);
}

TEST(TraitsOfKernelTest, SeesComplexNumbers) {
  const KernelTraits traits =
      TraitsOfKernel("cutlass_80_tensorop_s1688cgemm_128x64_16x4_nn_align1");
  EXPECT_TRUE(traits.complex_numbers);
  EXPECT_FALSE(traits.narrow);
  EXPECT_FALSE(TraitsOfKernel("ampere_sgemm_128x64_nn").complex_numbers);
}

TEST(KernelClassNameTest, GivesEveryClassANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(KernelClass::kCount); ++i) {
    names.insert(KernelClassName(static_cast<KernelClass>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(KernelClass::kCount));
}

}  // namespace
}  // namespace stepscope::kernel_class_test
