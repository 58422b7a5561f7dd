// What the names of kernels, ops, ranges and element types say about a
// collective operation. Covers NCCL, RCCL, MSCCL, gloo, c10d, DeepEP, and the
// collectives of symmetric memory and serving engines.
#pragma once

#include <cstdint>
#include <string_view>

namespace stepscope {

enum class CollectiveKind : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kPointToPoint,
  kOther,
};
// "all-reduce", "point-to-point"; "collective" for kOther.
const char* CollectiveName(CollectiveKind kind);

// The kind that a name contains, without case and punctuation:
// "ncclDevKernel_AllReduce_Sum_f32", "gloo:all_reduce", "c10d::allreduce_".
// kOther if it contains none.
CollectiveKind CollectiveKindOf(std::string_view name);

// True for the ops that issue a collective: those of c10d,
// record_param_comms, which c10d opens around each, and those of other
// libraries ("symm_mem::one_shot_all_reduce").
bool IsCollectiveOp(std::string_view name);

// Both take element types as c10 ("BFloat16", "c10::Half", "Long") or C++
// ("float", "long int") writes them. The size is in bytes, 0 if the type is
// unknown.
bool IsIntegerType(std::string_view type);
int64_t CollectiveElementBytes(std::string_view type);

// True for the 32-bit float, as c10 ("Float", "c10::Float"), C++ ("float") or
// Python ("torch.float32") writes it.
bool IsFloat32Type(std::string_view type);
// True if the name of a kernel says that it reduces 32-bit floats:
// "ncclDevKernel_AllReduce_Sum_f32_RING_LL", before NCCL 2.19
// "ncclKernel_AllReduce_RING_LL_Sum_float". Kernels that only move data do not
// say a type.
bool ReducesFloat32(std::string_view kernel);

// Returns the bytes that pass the slowest link per byte of the buffer, with n
// ranks: 2(n-1)/n for an all-reduce, (n-1)/n for reduce-scatter, all-gather and
// all-to-all, 1 otherwise; 0 for fewer than two ranks. Source: "bus bandwidth"
// in doc/PERFORMANCE.md of nccl-tests.
double BusFactor(CollectiveKind kind, int32_t group_size);

}  // namespace stepscope
