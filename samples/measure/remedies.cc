#include "remedies.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace measure {
namespace {

// What the sample does where a flag is not given.
constexpr int kBatch = 32;
constexpr int kThreads = 1;
const Settings& Defaults() {
  static const Settings* const settings = new Settings(*Settings::Parse(
      "--batch 32 --workers 0 --threads 1 --set-to-none 1 --sgd loop"));
  return *settings;
}

// A name in a finding's "settings", and the flag of the sample that it is.
enum class Means { kValue, kFactor, kOnIf, kOffIf };
struct NamedSetting {
  const char* name;
  const char* flag;
  Means means;
  const char* word = "";   // kOnIf, kOffIf: the value that means it
  const char* value = "";  // kOnIf: what the flag gets
};
constexpr NamedSetting kNamedSettings[] = {
    {"workers", "--workers", Means::kValue},
    {"intra_op_threads", "--threads", Means::kValue},
    {"batch_size", "--batch", Means::kValue},
    {"batch_factor", "--batch", Means::kFactor},
    {"set_to_none", "--set-to-none", Means::kOnIf, "true", "1"},
    {"optimizer_step", "--sgd", Means::kValue},
    {"memory_format", "--channels-last", Means::kOnIf, "channels_last"},
    {"validation_gradients", "--validate-grad", Means::kOffIf, "false"},
    {"conv_bias", "--conv-bias", Means::kOffIf, "false"},
    {"anomaly_mode", "--anomaly-mode", Means::kOffIf, "false"},
};

// What follows from the finding alone. Of several rows the first one counts
// that changes anything.
struct Remedy {
  const char* finding;
  const char* flag;
  const char* value;
};
constexpr Remedy kRemedies[] = {
    {"unfused-optimizer", "--sgd", "fused"},
    {"layout-transpose", "--channels-last", ""},
    {"channels-last-off", "--channels-last", ""},
    {"tf32-off", "--tf32", ""},
    {"cudnn-benchmark-off", "--cudnn-benchmark", ""},
    {"tensor-cores-idle", "--bf16", ""},
    {"h2d-pageable", "--pinned", ""},
    {"h2d-fp32-input", "--uint8", ""},
    {"launch-bound", "--cuda-graph", ""},
    {"h2d-blocking", "--pinned", ""},
};

// A finding that the habit of that name causes.
struct Cause {
  const char* finding;
  const char* habit;
  // Only if the finding says this; "" where it need not.
  const char* says;
};
constexpr Cause kCauses[] = {
    {"debug-api-on", "anomaly", ""},
    {"grad-in-validation", "validate-grad", ""},
    {"grad-clip-sync", "clip-sync", ""},
    {"logging-checkpoint-stall", "checkpoint", "checkpoint"},
    {"logging-checkpoint-stall", "print", ""},
    {"logging-checkpoint-stall", "checkpoint", ""},
    {"logging-checkpoint-stall", "item", ""},
    {"host-sync", "print", "print"},
    {"host-sync", "item", ""},
    {"host-sync", "print", ""},
    {"host-sync", "clip-sync", ""},
    {"bias-before-norm", "conv-bias", ""},
    {"host-created-tensor", "host-tensors", ""},
    {"conv-retuning", "variable-sizes", ""},
    {"allocator-churn", "variable-sizes", ""},
    {"variable-shapes", "variable-sizes", ""},
    {"zero-grad-kernels", "zero-gradients", ""},
};

bool Says(const AdvisedChange& change, std::string_view text) {
  return change.evidence.find(text) != std::string::npos ||
         change.where.find(text) != std::string::npos ||
         change.fix.find(text) != std::string::npos;
}

// For findings that name no number: as little as they can mean.
Settings FollowNumber(const AdvisedChange& change, const Advice& advice,
                      Settings settings) {
  const int workers = settings.Number("--workers", 0);
  // More workers have no first batch ready either.
  if (Says(change, "no batch ready")) return settings;
  if (change.id == "sync-data-loading" || change.id == "loader-bound") {
    settings.Set("--workers", std::to_string(workers + 1));
  } else if (change.id == "cores-idle") {
    const int free = std::max(1, advice.usable_cores - workers);
    if (free > settings.Number("--threads", kThreads)) {
      settings.Set("--threads", std::to_string(free));
    }
  } else if (change.id == "small-batch") {
    settings.Set("--batch",
                 std::to_string(2 * settings.Number("--batch", kBatch)));
  }
  return settings;
}

bool Same(const Settings& a, const Settings& b) {
  return Spelled(a) == Spelled(b);
}

Habit MakeHabit(const char* name, const char* on, const char* off = "",
                const char* with = "") {
  return {.name = name,
          .on = *Settings::Parse(on),
          .off = *Settings::Parse(off),
          .with = *Settings::Parse(with)};
}
Habit OnAGpu(Habit habit) {
  habit.needs_gpu = true;
  return habit;
}

}  // namespace

Settings Follow(const AdvisedChange& change, const Advice& advice,
                const Settings& settings) {
  Settings next = FollowNames(change.settings, settings);
  if (!Same(next, settings)) return next;
  for (const Cause& cause : kCauses) {
    if (change.id != cause.finding || !Says(change, cause.says)) continue;
    for (const Habit& habit : AllHabits()) {
      if (habit.name == cause.habit && HasHabit(habit, settings)) {
        return WithoutHabit(habit, settings);
      }
    }
  }
  for (const Remedy& remedy : kRemedies) {
    if (change.id != remedy.finding) continue;
    next = settings;
    next.Set(remedy.flag, remedy.value);
    if (!Same(next, settings)) return next;
  }
  return FollowNumber(change, advice, settings);
}

Settings FollowNames(const std::map<std::string, std::string>& names,
                     Settings settings) {
  for (const NamedSetting& named : kNamedSettings) {
    const auto at = names.find(named.name);
    if (at == names.end()) continue;
    const std::string& value = at->second;
    if (named.means == Means::kValue) {
      settings.Set(named.flag, value);
    } else if (named.means == Means::kFactor) {
      const double times = std::strtod(value.c_str(), nullptr);
      const int batch = settings.Number(named.flag, kBatch);
      settings.Set(named.flag, std::to_string(std::lround(times * batch)));
    } else if (value == named.word && named.means == Means::kOnIf) {
      settings.Set(named.flag, named.value);
    } else if (value == named.word) {
      settings.Drop(named.flag);
    }
  }
  return settings;
}

Settings Spelled(const Settings& settings) { return Defaults().With(settings); }

const std::vector<Habit>& AllHabits() {
  static const std::vector<Habit>* const habits = new std::vector<Habit>{
      MakeHabit("item", "--item-every-step"),
      MakeHabit("print", "--print-tensor"),
      MakeHabit("anomaly", "--anomaly-mode"),
      MakeHabit("clip-sync", "--clip-sync", "--clip"),
      MakeHabit("validate-grad", "--validate-grad", "",
                "--validate-every 1 --validate-batches 1"),
      MakeHabit("checkpoint", "--checkpoint-every 1"),
      // New sizes cost cuDNN's trials; on a CPU only the larger pictures cost.
      OnAGpu(MakeHabit("variable-sizes", "--variable-sizes")),
      MakeHabit("zero-gradients", "--set-to-none 0"),
      MakeHabit("conv-bias", "--conv-bias"),
      OnAGpu(MakeHabit("host-tensors", "--host-tensors")),
  };
  return *habits;
}

const std::vector<Habit>& CpuHabits() {
  static const std::vector<Habit>* const habits = [] {
    auto* some = new std::vector<Habit>(AllHabits());
    std::erase_if(*some, [](const Habit& habit) { return habit.needs_gpu; });
    return some;
  }();
  return *habits;
}

bool HasHabit(const Habit& habit, const Settings& settings) {
  return settings.With(habit.on) == settings;
}

Settings WithHabit(const Habit& habit, const Settings& settings) {
  Settings with = settings.With(habit.with).With(habit.on);
  for (const auto& [flag, value] : habit.off.values()) with.Drop(flag);
  return with;
}

Settings WithoutHabit(const Habit& habit, const Settings& settings) {
  Settings without = settings;
  for (const auto& [flag, value] : habit.on.values()) without.Drop(flag);
  return without.With(habit.off);
}

}  // namespace measure
