#include "settings_decode.h"

#include <array>
#include <string_view>

namespace stepscope {
namespace {

// Returns the type of autocast for the number of a c10::ScalarType.
std::string_view AutocastType(int8_t type) {
  switch (type) {
    case 5:
      return "c10::Half";
    case 6:
      return "float";
    case 15:
      return "c10::BFloat16";
    default:
      return "";
  }
}

std::string_view MatmulPrecision(int8_t precision) {
  constexpr std::array<std::string_view, 3> kNames = {"highest", "high",
                                                      "medium"};
  return precision >= 0 && precision < 3 ? kNames[precision] : "";
}

}  // namespace

void AddSettings(std::span<const SettingsSample> samples,
                 TraceBuilder& builder) {
  builder.Watch(Kind::kSettings);
  for (const SettingsSample& sample : samples) {
    builder.Add(Settings{
        .step = sample.step,
        .time_ns = sample.time_ns,
        .grad_mode = sample.grad_mode,
        .inference_mode = sample.inference_mode,
        .autocast_cpu = sample.autocast_cpu,
        .autocast_cuda = sample.autocast_cuda,
        .cudnn_enabled = sample.cudnn_enabled,
        .cudnn_benchmark = sample.cudnn_benchmark,
        .deterministic = sample.deterministic,
        .tf32_cublas = sample.tf32_cublas,
        .tf32_cudnn = sample.tf32_cudnn,
        .anomaly_mode = sample.anomaly_mode,
        .intra_op_threads = sample.intra_op_threads,
        .inter_op_threads = sample.inter_op_threads,
        .autocast_dtype = builder.Intern(AutocastType(sample.autocast_dtype)),
        .matmul_precision =
            builder.Intern(MatmulPrecision(sample.matmul_precision))});
  }
}

}  // namespace stepscope
