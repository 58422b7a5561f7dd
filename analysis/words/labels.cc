#include "words/labels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "words/quantities.h"

namespace stepscope {
namespace {

template <typename Enum, size_t kSize>
const char* NameIn(const std::array<const char*, kSize>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kSize ? names[index] : "unknown";
}

}  // namespace

double GainStepMs(const StepStats& steps) {
  // To the user, the step without the profiler matters. It is used if the cost
  // of recording is known.
  return steps.unprofiled_ms > 0 ? steps.unprofiled_ms : steps.mean_ms;
}

double BaselineMs(const Report& report, const Finding& finding) {
  return finding.baseline_ms > 0 ? finding.baseline_ms
                                 : GainStepMs(report.steps);
}

// Two standard errors, which cover 95 % of the chance variation of a mean.
double NoiseOfMeanMs(const StepStats& steps) {
  return 2 * steps.cov * steps.mean_ms /
         std::sqrt(static_cast<double>(std::max<int64_t>(steps.steady, 1)));
}

// A gain with a bound may be anything from 0 to the bound, so half of the bound
// counts.
double LikelyMs(const Finding& finding) {
  return finding.gain_kind == GainKind::kBound ? finding.gain.expected_ms / 2
                                               : finding.gain.expected_ms;
}

bool LacksSizes(const SkippedRule& rule) {
  return rule.why.find("op-shapes") != std::string::npos ||
         rule.why.find("(record_shapes)") != std::string::npos;
}

const char* StatusName(FindingStatus status) {
  return NameIn(std::to_array({"ok", "warning", "error"}), status);
}
const char* SeverityName(FindingSeverity severity) {
  return NameIn(std::to_array({"note", "low", "medium", "high", "critical"}),
                severity);
}
const char* SeverityName(Severity severity) {
  return NameIn(std::to_array({"note", "warning", "error"}), severity);
}
const char* ConfidenceName(Confidence confidence) {
  return NameIn(std::to_array({"hint", "strong", "proven"}), confidence);
}
const char* GainName(GainKind kind) {
  return NameIn(std::to_array({"none", "bound", "predicted"}), kind);
}

std::string CopyInWords(const Copy& copy) {
  // In the order of MemoryKind.
  constexpr auto kKinds = std::to_array(
      {"unknown", "pageable", "pinned", "device", "array", "managed", "host"});
  return std::string(NameIn(kKinds, copy.source)) + " -> " +
         NameIn(kKinds, copy.destination);
}

std::string MemoryDeviceName(const MemoryPeak& peak) {
  return peak.device_type == 0
             ? "cpu"
             : "gpu " + std::to_string(std::max(peak.device, 0));
}

std::string LossInWords(const Loss& loss) {
  std::string text = Capitalised(loss.detail.empty() ? loss.name : loss.detail);
  if (!text.ends_with('.')) text += '.';
  return text;
}

std::string PlaceInWords(std::string_view what) {
  for (std::string_view word : {"at ", "after ", "before ", "between "}) {
    if (what.starts_with(word)) return std::string(what);
  }
  return "in " + std::string(what);
}

std::string CauseInWords(std::string_view key, bool has_gpu) {
  // Not an object with a destructor, because a background thread may still
  // write a report while the program's exit destroys such objects.
  static constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"compute", "computing"},
      {"communication", "communicating"},
      {"copy", "copying"},
      {"kernel_latency", "short gaps between kernels"},
      {"graph_opaque", "inside CUDA graphs"},
      {"dependency", "waiting for another stream"},
      {"sync", "synchronising"},
      {"blocking_copy", "blocking copies"},
      {"allocator", "allocating memory"},
      {"data", "loading data"},
      {"profiler", "profiler overhead"},
      {"gc", "Python garbage collection"},
      {"dispatch", "overhead inside ops"},
      {"host_code", "code between ops"},
      {"contended", "waiting for a free core"},
      {"unknown", "unexplained"}};
  // On a GPU run, the host's work inside ops is to launch kernels.
  if (has_gpu && key == "dispatch") return "launching";
  for (const auto& [known, words] : kWords) {
    if (known == key) return words;
  }
  return std::string(key);
}

std::string MachineInWords(const Report& report) {
  const RunInfo& run = report.run;
  if (report.has_gpu) {
    std::map<std::string, int64_t> devices;
    for (const Device& device : run.devices) {
      ++devices[device.name.empty() ? "GPU" : device.name];
    }
    std::string text;
    for (const auto& [name, count] : devices) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " + name;
    }
    // A trace file lists all devices of its host, including unused ones.
    if (devices.size() == 1 && report.devices_used > 0) {
      const auto& [name, count] = *devices.begin();
      const std::string used = std::to_string(report.devices_used);
      text = report.devices_used < count
                 ? used + " of " + std::to_string(count) + " x " + name
                 : used + " x " + name;
    }
    return text.empty() ? "GPU" : text;
  }
  // A trace file lists the devices of its host, used or not.
  std::string text = !report.accelerator.empty()
                         ? report.accelerator + " (only the host was recorded)"
                     : run.devices.empty() ? "CPU only"
                                           : "no GPU work recorded";
  if (run.usable_cores > 0) text += ", " + Count(run.usable_cores, "core");
  return text;
}

std::string RankInWords(const RunInfo& run) {
  if (run.rank < 0 || run.world_size == 1) return "";
  std::string text = "rank " + std::to_string(run.rank);
  if (run.world_size > 0) text += " of " + std::to_string(run.world_size);
  return text;
}

std::string GainInShort(const Finding& finding) {
  if (finding.gain_kind == GainKind::kNone) return "";
  return (finding.gain_kind == GainKind::kBound ? "at most " : "predicted ") +
         Milliseconds(finding.gain.expected_ms);
}

std::string AlsoInWords(const Finding& muted) {
  const std::string gain = GainInShort(muted);
  return muted.id + (gain.empty() ? "" : ", " + gain + " by itself");
}

std::string SupersededBy(std::string_view id, std::string_view by) {
  return std::string(id) + " (by " + std::string(by) + ")";
}

std::string GainInWords(const Report& report, const Finding& finding) {
  const Gain& gain = finding.gain;
  if (finding.gain_kind == GainKind::kNone || gain.expected_ms <= 0) return "";
  const double step_ms = BaselineMs(report, finding);
  if (finding.gain_kind == GainKind::kBound) {
    return "gain at most " + Milliseconds(gain.expected_ms) + " per step (of " +
           Milliseconds(step_ms) +
           // Of the bounds, only those about slow steps have their own
           // baseline, because the mean steady step leaves such steps out.
           (finding.baseline_ms > 0 ? ", slow steps included)" : ")") +
           (gain.pairs > 0 ? ", likely at least " + Milliseconds(gain.low_ms)
                           : "");
  }
  std::string text = "predicted gain " + Milliseconds(gain.expected_ms) +
                     (gain.pairs > 0 ? " (likely " : " (roughly ") +
                     Number(gain.low_ms) + " to " + Number(gain.high_ms) +
                     "): " + Number(step_ms) + " to " +
                     Milliseconds(step_ms - gain.expected_ms) + " per step";
  if (finding.speedup > 0) text += ", " + Factor(finding.speedup);
  return text;
}

bool ShowsDamage(const Finding& finding) {
  return finding.id == "capture-incomplete" &&
         finding.status == FindingStatus::kError;
}

bool IsNote(const Finding& finding) {
  return finding.severity == FindingSeverity::kNote &&
         finding.status == FindingStatus::kOk;
}

// A note may gain much after other changes. Then the plan turns it into a
// warning with a predicted gain, but its severity stays that of its own gain.
bool IsAdvice(const Finding& finding) {
  return finding.severity != FindingSeverity::kNote ||
         (finding.status != FindingStatus::kOk &&
          finding.gain_kind == GainKind::kPredicted);
}

bool IsQuestion(const Finding& finding) {
  return finding.id == "cores-idle" &&
         finding.confidence == Confidence::kHint && finding.settings.empty();
}

int NumberOf(const Report& report, const Finding& finding) {
  if (!IsAdvice(finding)) return 0;
  int number = 0;
  for (const Finding& one : report.findings) {
    number += IsAdvice(one);
    if (&one == &finding) break;
  }
  return number;
}

}  // namespace stepscope
