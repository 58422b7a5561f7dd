#include "counters/counter_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "api/cupti_status.h"

namespace stepscope {
namespace {

// A counter has different names on different chips, so the first name that the
// chip knows is taken (real_cupti_test.cc asks NVIDIA's library for each). The
// counters are in order of importance: those that do not fit into one pass are
// left out, starting from the end.
struct Wanted {
  float CounterSample::*field;
  const char* what;
  std::array<const char*, 3> names;
};
constexpr Wanted kWanted[] = {
    {&CounterSample::tensor_active_frac,
     "Tensor Cores",
     {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
      "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_"
      "elapsed",
      "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed"}},
    {&CounterSample::sm_active_frac,
     "multiprocessors",
     {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed"}},
    {&CounterSample::dram_frac,
     "memory",
     {"dram__throughput.avg.pct_of_peak_sustained_elapsed",
      "dramc__throughput.avg.pct_of_peak_sustained_elapsed"}},
};

// CUPTI of CUDA 12.6 to 13.0 returns the second code for a name that a chip
// lacks.
bool IsUnknownMetric(CUptiResult code) {
  return code == CUPTI_ERROR_INVALID_METRIC_NAME ||
         code == CUPTI_ERROR_INVALID_PARAMETER;
}

}  // namespace

std::vector<std::vector<const char*>> CounterNames() {
  std::vector<std::vector<const char*>> all;
  for (const Wanted& wanted : kWanted) {
    std::vector<const char*>& names = all.emplace_back();
    // A counter with fewer names than the array has room for has nulls at the
    // end.
    for (const char* name : wanted.names) {
      if (name != nullptr) names.push_back(name);
    }
  }
  return all;
}

const CounterFunctions& CountersOf(const CuptiApi& api) {
  std::string missing;
  return *api.counters(&missing);
}

absl::Status CheckCounters(const CuptiApi& api, const char* attempt,
                           CUptiResult code) {
  return code == CUPTI_SUCCESS ? absl::OkStatus()
                               : CuptiError(api, attempt, code);
}

CounterChoice::CounterChoice(CuptiApi& api) : api_(api), f_(CountersOf(api)) {}

std::string CounterChoice::missing() const {
  std::string text;
  for (const Wanted& wanted : kWanted) {
    if (std::ranges::find(fields_, wanted.field) != fields_.end()) continue;
    text += (text.empty() ? "" : ", ") + std::string(wanted.what);
  }
  return text;
}

absl::Status CounterChoice::MakeHost(const std::string& chip,
                                     const std::vector<uint8_t>& availability) {
  DropHost();
  auto params = Sized<CUpti_Profiler_Host_Initialize_Params>(
      CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  params.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage =
      availability.empty() ? nullptr : availability.data();
  absl::Status status = CheckCounters(api_, "prepare hardware counters",
                                      f_.host_initialize(&params));
  if (status.ok()) host_ = params.pHostObject;
  return status;
}

void CounterChoice::DropHost() {
  if (host_ == nullptr) return;
  auto params = Sized<CUpti_Profiler_Host_Deinitialize_Params>(
      CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
  params.pHostObject = std::exchange(host_, nullptr);
  (void)f_.host_deinitialize(&params);
}

// Configures the host object for `metrics`. `passes` becomes the number of
// times the device would have to repeat its work to count them all, or 0 if the
// chip does not know one of them.
absl::Status CounterChoice::Configure(std::vector<const char*>& metrics,
                                      size_t* passes) {
  *passes = 0;
  auto add = Sized<CUpti_Profiler_Host_ConfigAddMetrics_Params>(
      CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  add.pHostObject = host_;
  add.ppMetricNames = metrics.data();
  add.numMetrics = metrics.size();
  const CUptiResult added = f_.add_metrics(&add);
  if (IsUnknownMetric(added)) return absl::OkStatus();
  const auto check = [&](CUptiResult code) {
    return CheckCounters(api_, "configure hardware counters", code);
  };
  if (absl::Status s = check(added); !s.ok()) return s;
  auto size = Sized<CUpti_Profiler_Host_GetConfigImageSize_Params>(
      CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  size.pHostObject = host_;
  if (absl::Status s = check(f_.get_config_size(&size)); !s.ok()) return s;
  config_.assign(size.configImageSize, 0);
  auto image = Sized<CUpti_Profiler_Host_GetConfigImage_Params>(
      CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  image.pHostObject = host_;
  image.configImageSize = config_.size();
  image.pConfigImage = config_.data();
  if (absl::Status s = check(f_.get_config(&image)); !s.ok()) return s;
  auto count = Sized<CUpti_Profiler_Host_GetNumOfPasses_Params>(
      CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  count.configImageSize = config_.size();
  count.pConfigImage = config_.data();
  if (absl::Status s = check(f_.get_passes(&count)); !s.ok()) return s;
  *passes = count.numOfPasses;
  return absl::OkStatus();
}

// Each attempt needs a new host object, because a host object keeps everything
// that was added to it.
absl::Status CounterChoice::Choose(const std::string& chip,
                                   const std::vector<uint8_t>& availability) {
  metrics_.clear();
  fields_.clear();
  bool is_current = false;  // host_ and config_ belong to metrics_
  const auto configure = [&](std::vector<const char*>& metrics,
                             size_t* passes) {
    absl::Status status = MakeHost(chip, availability);
    return status.ok() ? Configure(metrics, passes) : status;
  };
  for (const Wanted& wanted : kWanted) {
    for (const char* name : wanted.names) {
      if (name == nullptr) break;
      // Try it together with the counters chosen before: a step runs only once,
      // so one pass must count them all.
      std::vector<const char*> more = metrics_;
      more.push_back(name);
      size_t passes = 0;
      if (absl::Status s = configure(more, &passes); !s.ok()) return s;
      is_current = passes == 1;
      if (!is_current) continue;
      metrics_ = std::move(more);
      fields_.push_back(wanted.field);
      break;
    }
  }
  if (metrics_.empty()) {
    return absl::UnavailableError("CUPTI: the chip " + chip +
                                  " has no hardware counters that stepscope "
                                  "knows and that can be sampled");
  }
  // If the last attempt was refused, the host object and the configuration are
  // made again for the chosen metrics.
  size_t passes = 0;
  return is_current ? absl::OkStatus() : configure(metrics_, &passes);
}

absl::Status CounterChoice::Evaluate(const std::vector<uint8_t>& data,
                                     size_t index, CounterSample& sample) {
  double values[std::size(kWanted)] = {};
  auto params = Sized<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(
      CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  params.pHostObject = host_;
  params.pCounterDataImage = data.data();
  params.counterDataImageSize = data.size();
  params.rangeIndex = index;
  params.ppMetricNames = metrics_.data();
  params.numMetrics = metrics_.size();
  params.pMetricValues = values;
  if (absl::Status s =
          CheckCounters(api_, "evaluate a sample", f_.evaluate(&params));
      !s.ok()) {
    return s;
  }
  for (size_t i = 0; i < fields_.size(); ++i) {
    // In percent; noise may exceed 100. Values that are not numbers were not
    // counted.
    if (!std::isfinite(values[i]) || values[i] < 0) continue;
    sample.*fields_[i] = static_cast<float>(std::min(values[i] / 100, 1.0));
  }
  return absl::OkStatus();
}

}  // namespace stepscope
