// SettingsSample: the data that the settings collector's hook copies, not yet
// decoded.
#pragma once

#include <cstdint>

namespace stepscope {

// One reading. -1: unknown. Types are torch's numbers.
struct SettingsSample {
  int64_t step = -1;
  int64_t time_ns = 0;
  int8_t grad_mode = -1;
  int8_t inference_mode = -1;
  int8_t autocast_cpu = -1;
  int8_t autocast_cuda = -1;
  int8_t cudnn_enabled = -1;
  int8_t cudnn_benchmark = -1;
  int8_t deterministic = -1;
  int8_t tf32_cublas = -1;
  int8_t tf32_cudnn = -1;
  int8_t anomaly_mode = -1;
  int8_t autocast_dtype = -1;    // of the device whose autocast is on
  int8_t matmul_precision = -1;  // 0 highest, 1 high, 2 medium
  int32_t intra_op_threads = -1;
  int32_t inter_op_threads = -1;
};

}  // namespace stepscope
