// What the names of kernels, ops and ranges say about a collective operation,
// whoever wrote them: NCCL, RCCL, gloo, c10d.
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
const char* CollectiveName(CollectiveKind kind);

// "ncclDevKernel_AllReduce_Sum_f32", "gloo:all_reduce", "c10d::allreduce_";
// kOther where the name does not say.
CollectiveKind CollectiveKindOf(std::string_view name);

// True for ops that issue a collective: c10d's, and record_param_comms.
bool IsCollectiveOp(std::string_view name);

// Element types as c10 ("BFloat16", "Long") or C++ ("long int") name them.
bool IsIntegerType(std::string_view type);
int64_t CollectiveElementBytes(std::string_view type);  // 0 if unknown

// Bytes over the slowest link per byte of the buffer, as NCCL's tests count:
// 2(n-1)/n for an all-reduce, (n-1)/n for the others but a broadcast.
double BusFactor(CollectiveKind kind, int32_t group_size);

}  // namespace stepscope
