#include "engine/edit_settings.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <variant>

#include "context/analysis_context.h"
#include "engine/rule_families.h"
#include "evidence/optimizer_work.h"
#include "ops/op_arguments.h"
#include "replay/model/loader.h"
#include "steps/patterns.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

bool Is(const Setting& setting, bool value) {
  const bool* is = std::get_if<bool>(&setting.value);
  return is != nullptr && *is == value;
}
// Not an overload of Is(), because a string literal would convert to bool.
bool IsText(const Setting& setting, std::string_view text) {
  const std::string* is = std::get_if<std::string>(&setting.value);
  return is != nullptr && *is == text;
}
// Returns the value as a number; -1 if it is not a number or is negative.
double NumberOf(const Setting& setting) {
  double number = -1;
  if (const auto* whole = std::get_if<int64_t>(&setting.value)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&setting.value)) {
    number = *real;
  }
  return number >= 0 ? number : -1;
}

// Returns `edit`, or no change if the run has the setting `already`.
Edit Unless(bool already, Edit edit) {
  return already ? Edit() : std::move(edit);
}

// Returns the edit for a fused optimizer step. nullopt if the cost of a fused
// step is unknown: for grouped (foreach) steps, which already pass over all
// parameters at once, and for updates whose memory traffic was not measured.
std::optional<Edit> FusedUpdate(const AnalysisContext& before) {
  const OptimizerWork updates = MeasureOptimizer(before);
  if (updates.fused) return Edit();
  if (updates.grouped || updates.fused_left < 0) return std::nullopt;
  return Edit{.fused_update = updates.fused_left};
}

std::optional<Edit> TimesBatch(double times) {
  return times > 0 ? std::optional(Edit{.batch = times}) : std::nullopt;
}

// True if any replayed work satisfies `kind`.
template <typename Kind>
bool Has(const CpuProgram& program, const Kind& kind) {
  return std::ranges::any_of(program.steps, [&](const auto& step) {
    return std::ranges::any_of(step, kind);
  });
}

// True if the replay of a CPU-only run can express all of `edit`. What `edit`
// removes must occur in the replayed steps: for work that occurs only in other
// steps (mostly those that validate), replay would predict no gain.
bool CanReplayOnCpu(const CpuProgram& program, const Edit& edit) {
  const auto tagged = [&](WorkTag tag) {
    return Has(program, [=](const Work& work) { return work.tag == tag; });
  };
  // With workers, the wait for their batches was recorded, but not their work.
  if (edit.workers == 0 && program.workers != 0) return false;
  if (edit.workers > 0 && program.batch_cpu_ns <= 0) return false;
  if (edit.drop_zero_grad && !tagged(WorkTag::kZeroGrad)) return false;
  if (edit.drop_anomaly && !tagged(WorkTag::kAnomaly)) return false;
  if (edit.drop_unused_graph && !tagged(WorkTag::kUnusedGraph)) return false;
  return edit.fused_update < 0 || Has(program, [](const Work& work) {
           return work.update == Update::kComputing;
         });
}

// The same for a run with a GPU, where settings can change only the workers.
bool CanReplayOnDevice(const DeviceProgram& program, const Edit& edit) {
  return edit.workers < 0 ||
         (edit.workers > 0 && program.loads_in_process && program.batch_ns > 0);
}

}  // namespace

std::vector<std::string> ChangesInWords(const Edit& edit) {
  std::vector<std::string> words;
  if (edit.workers >= 0) words.push_back(Count(edit.workers, "loader worker"));
  if (edit.threads > 0) words.push_back(Count(edit.threads, "intra-op thread"));
  if (edit.batch != 1) words.push_back("batch x " + Times(edit.batch));
  if (edit.channels_last) words.push_back("channels-last weights");
  if (edit.drop_zero_grad) words.push_back("gradients set to None");
  if (edit.drop_unused_graph) words.push_back("no gradients in validation");
  if (edit.drop_anomaly) words.push_back("anomaly detection off");
  if (edit.fused_update >= 0) words.push_back("fused optimizer step");
  if (edit.dispatch_ns >= 0) words.push_back("compiled model");
  for (const HostCut& cut : edit.cuts) {
    if (cut.change != nullptr && !std::ranges::count(words, cut.change)) {
      words.push_back(cut.change);
    }
  }
  return words;
}

std::string ChangeOfRule(std::string_view id) {
  const Rule* rule = FindRule(id);
  return std::string(rule == nullptr || *rule->change == '\0' ? id
                                                              : rule->change);
}

int64_t BatchSize(const Trace& trace) {
  int64_t size = -1;
  for (const Loader& loader : trace.loaders()) {
    size = std::max<int64_t>(size, loader.batch_size);
  }
  return size;
}

std::vector<Setting> SettingsOf(const Edit& edit, int64_t batch_size) {
  std::vector<Setting> settings;
  if (edit.workers >= 0) {
    settings.push_back({"workers", int64_t{edit.workers}});
  }
  if (edit.threads > 0) {
    settings.push_back({"intra_op_threads", int64_t{edit.threads}});
  }
  if (edit.batch != 1 && batch_size > 0) {
    settings.push_back(
        {"batch_size", static_cast<int64_t>(std::llround(
                           edit.batch * static_cast<double>(batch_size)))});
  } else if (edit.batch != 1) {
    settings.push_back({"batch_factor", edit.batch});
  }
  if (edit.channels_last) {
    settings.push_back({"memory_format", std::string("channels_last")});
  }
  if (edit.drop_zero_grad) settings.push_back({"set_to_none", true});
  if (edit.drop_unused_graph) {
    settings.push_back({"validation_gradients", false});
  }
  if (edit.drop_anomaly) settings.push_back({"anomaly_mode", false});
  if (edit.fused_update >= 0) {
    settings.push_back({"optimizer_step", std::string("fused")});
  }
  if (edit.dispatch_ns >= 0) settings.push_back({"compiled", true});
  return settings;
}

std::optional<Edit> EditOf(const AnalysisContext& before,
                           const Setting& setting) {
  const std::string& key = setting.key;
  const double number = NumberOf(setting);
  if (key == "workers" && number >= 0) {
    const int workers = static_cast<int>(number);
    return Unless(workers == LoaderWorkers(before.trace), {.workers = workers});
  }
  // All other settings change activities of a GPU run, and only a finding names
  // these activities.
  if (before.has_gpu) return std::nullopt;
  if (key == "intra_op_threads" && number > 0) {
    const int threads = static_cast<int>(number);
    return Unless(threads == before.replay.program().threads,
                  {.threads = threads});
  }
  if (key == "batch_factor") return TimesBatch(number);
  if (key == "batch_size") {
    const auto size = static_cast<double>(BatchSize(before.trace));
    return size > 0 ? TimesBatch(number / size) : std::nullopt;
  }
  if (key == "memory_format" && IsText(setting, "channels_last")) {
    return Unless(HasChannelsLastWeights(before.trace),
                  {.channels_last = true});
  }
  if (key == "set_to_none" && Is(setting, true)) {
    return Unless(before.parts.zero_grad.zeroing.empty(),
                  {.drop_zero_grad = true});
  }
  if (key == "validation_gradients" && Is(setting, false)) {
    return Unless(before.parts.unused_graphs.empty(),
                  {.drop_unused_graph = true});
  }
  if (key == "anomaly_mode" && Is(setting, false)) {
    const std::optional<bool> on = RecordedAnomalyMode(before.trace);
    if (!on) return std::nullopt;
    return Unless(!*on, {.drop_anomaly = true});
  }
  if (key == "optimizer_step" && IsText(setting, "fused")) {
    return FusedUpdate(before);
  }
  return std::nullopt;
}

bool CanReplay(const Replay& replay, const Edit& edit) {
  const DeviceProgram* device = replay.device();
  return device != nullptr ? CanReplayOnDevice(*device, edit)
                           : CanReplayOnCpu(replay.program(), edit);
}

}  // namespace stepscope
