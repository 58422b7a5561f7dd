#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <stepscope/clock.h>
#include <stepscope/collectors.h>
#include <stepscope/trace_builder.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/version.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "settings_decode.h"
#include "settings_samples.h"

namespace stepscope {
namespace {

// Enough for a million steps; a window has only a few.
constexpr size_t kMaxSamples = 1'000'000;

// Returns `read()`, or -1 if it throws. Some settings throw in programs that
// mix the old and the new interface (allow_tf32 and fp32_precision).
template <typename Read>
auto OrUnknown(Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::exception&) {
    return -1;
  }
}

// Must run on the training thread, because most of these settings belong to the
// thread that reads them.
SettingsSample ReadSettings(int64_t step, int64_t now_ns) {
  const at::Context& context = at::globalContext();
  SettingsSample sample;
  sample.step = step;
  sample.time_ns = now_ns;
  sample.grad_mode = c10::GradMode::is_enabled();
  sample.inference_mode = c10::InferenceMode::is_enabled();
  sample.anomaly_mode = torch::autograd::AnomalyMode::is_enabled();
  sample.cudnn_enabled = context.userEnabledCuDNN();
  sample.cudnn_benchmark = context.benchmarkCuDNN();
  sample.deterministic =
      context.deterministicAlgorithms() || context.deterministicCuDNN();
  sample.autocast_cpu = OrUnknown(
      [] { return int8_t{at::autocast::is_autocast_enabled(at::kCPU)}; });
  sample.autocast_cuda = OrUnknown(
      [] { return int8_t{at::autocast::is_autocast_enabled(at::kCUDA)}; });
  sample.tf32_cublas =
      OrUnknown([&] { return int8_t{context.allowTF32CuBLAS()}; });
  sample.tf32_cudnn =
      OrUnknown([&] { return int8_t{context.allowTF32CuDNN()}; });
  sample.matmul_precision = OrUnknown(
      [&] { return static_cast<int8_t>(context.float32MatmulPrecision()); });
  if (sample.autocast_cuda == 1 || sample.autocast_cpu == 1) {
    sample.autocast_dtype = OrUnknown([&] {
      return static_cast<int8_t>(at::autocast::get_autocast_dtype(
          sample.autocast_cuda == 1 ? at::kCUDA : at::kCPU));
    });
  }
  sample.intra_op_threads = OrUnknown([] { return at::get_num_threads(); });
  sample.inter_op_threads =
      OrUnknown([] { return static_cast<int>(at::get_num_interop_threads()); });
  return sample;
}

class SettingsRecording : public Recording {
 public:
  explicit SettingsRecording(std::vector<SettingsSample> samples)
      : samples_(std::move(samples)) {}

  void AddTo(TraceBuilder& builder, const ClockMap&, const SlotLog&) override {
    builder.run().torch_version = TORCH_VERSION;
    AddSettings(samples_, builder);
  }

 private:
  std::vector<SettingsSample> samples_;
};

// Its only hook is OnStep(). Settings change rarely, so one reading per step is
// enough to show when they did.
class SettingsCollector : public Collector {
 public:
  std::string_view name() const override { return "settings"; }

  absl::Status Start() override {
    samples_.clear();
    samples_.reserve(64);
    return absl::OkStatus();
  }

  void OnStep(int64_t step, int64_t now_ns) override {
    if (samples_.size() < kMaxSamples) {
      samples_.push_back(ReadSettings(step, now_ns));
    }
  }

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    return std::make_unique<SettingsRecording>(std::move(samples_));
  }

 private:
  std::vector<SettingsSample> samples_;
};

}  // namespace

std::unique_ptr<Collector> MakeSettingsCollector() {
  return std::make_unique<SettingsCollector>();
}

}  // namespace stepscope
