#include "words/labels.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "words/quantities.h"

namespace stepscope {
namespace {

// A step is healthy if nothing is found and it computes for at least this
// share.
constexpr double kHealthyFrac = 0.5;
// A gain of this share of the step (medium severity) must not be dropped
// without a word where step times vary by more than kNoisyCov.
constexpr double kHeldBackFrac = 0.03;
constexpr double kNoisyCov = 0.05;
constexpr size_t kHeldBackShown = 3;

template <typename Enum, size_t kSize>
const char* NameIn(const std::array<const char*, kSize>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kSize ? names[index] : "unknown";
}

// "zero-grad-kernels (18.0 ms), ..."; empty if there are none.
std::string HeldBackInWords(const Report& report) {
  const std::vector<const Finding*> held = HeldBack(report);
  std::string text;
  for (size_t i = 0; i < std::min(held.size(), kHeldBackShown); ++i) {
    const Finding& finding = *held[i];
    text += (text.empty() ? "" : ", ") + finding.id + " (" +
            (finding.gain_kind == GainKind::kBound ? "at most " : "") +
            Milliseconds(finding.gain.expected_ms) + ")";
  }
  return text + (held.size() > kHeldBackShown ? ", ..." : "");
}

bool SetsBatch(const Plan& plan) {
  return std::ranges::any_of(plan.settings, [](const Setting& setting) {
    return setting.key == "batch_size" || setting.key == "batch_factor";
  });
}

}  // namespace

std::vector<const Finding*> HeldBack(const Report& report) {
  if (report.steps.cov <= kNoisyCov) return {};
  std::vector<std::pair<double, const Finding*>> held;
  for (const Finding& finding : report.findings) {
    const bool bound = finding.gain_kind == GainKind::kBound;
    // A bound counts half, as it does for severities.
    const double ms = finding.gain.expected_ms * (bound ? 0.5 : 1);
    if (!IsNote(finding) || finding.gain_kind == GainKind::kNone ||
        ms < kHeldBackFrac * BaselineMs(report, finding)) {
      continue;
    }
    held.push_back({-ms, &finding});
  }
  std::ranges::stable_sort(held, {}, &std::pair<double, const Finding*>::first);
  std::vector<const Finding*> findings;
  for (const auto& [ms, finding] : held) findings.push_back(finding);
  return findings;
}

double BaselineMs(const Report& report, const Finding& finding) {
  return finding.baseline_ms > 0 ? finding.baseline_ms : report.steps.mean_ms;
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

std::string CauseInWords(std::string_view key, bool has_gpu) {
  // No object with a destructor: a background thread may still write a report
  // while the program's exit destroys such objects.
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
      {"unknown", "unexplained"}};
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
    // A trace file lists all devices of its host, used or not.
    if (devices.size() == 1 && report.devices_used > 0) {
      const auto& [name, count] = *devices.begin();
      const std::string used = std::to_string(report.devices_used);
      text = report.devices_used < count
                 ? used + " of " + std::to_string(count) + " x " + name
                 : used + " x " + name;
    }
    return text.empty() ? "GPU" : text;
  }
  std::string text = "CPU only";
  if (run.usable_cores > 0) text += ", " + Count(run.usable_cores, "core");
  return text;
}

std::string RankInWords(const RunInfo& run) {
  if (run.rank < 0 || run.world_size == 1) return "";
  std::string text = "rank " + std::to_string(run.rank);
  if (run.world_size > 0) text += " of " + std::to_string(run.world_size);
  return text;
}

std::string GainInWords(const Report& report, const Finding& finding) {
  const Gain& gain = finding.gain;
  if (finding.gain_kind == GainKind::kNone || gain.expected_ms <= 0) return "";
  const double step_ms = BaselineMs(report, finding);
  if (finding.gain_kind == GainKind::kBound) {
    return "gain at most " + Milliseconds(gain.expected_ms) + " per step (of " +
           Milliseconds(step_ms) +
           (finding.baseline_ms > 0 ? ", slow steps included)" : ")");
  }
  std::string text = "predicted gain " + Milliseconds(gain.expected_ms) +
                     " (likely " + Number(gain.low_ms) + " to " +
                     Number(gain.high_ms) + "): " + Number(step_ms) + " to " +
                     Milliseconds(step_ms - gain.expected_ms) + " per step";
  if (finding.speedup > 0) text += ", " + Factor(finding.speedup);
  return text;
}

std::string PlanInWords(const Report& report) {
  const Plan& plan = report.plan;
  if (plan.ids.empty() || plan.step_after_ms <= 0) return "";
  std::string numbers;
  for (size_t i = 0; i < plan.ids.size(); ++i) {
    if (i > 0) numbers += i + 1 == plan.ids.size() ? " and " : ", ";
    const auto done =
        std::ranges::find(report.findings, plan.ids[i], &Finding::id);
    numbers += done == report.findings.end()
                   ? plan.ids[i]
                   : std::to_string(NumberOf(report, *done));
  }
  std::string changes;
  for (const std::string& change : plan.changes) {
    changes += (changes.empty() ? "" : ", ") + change;
  }
  std::string text = (plan.ids.size() > 1 ? "Apply " + numbers + " together ("
                                          : "Start with " + numbers + " (") +
                     changes + "): predicted " + Number(plan.step_before_ms) +
                     " to " + Milliseconds(plan.step_after_ms) + " per step, " +
                     Factor(plan.step_before_ms / plan.step_after_ms);
  if (plan.low_ms > 0) {
    text += " (likely " + Factor(plan.step_before_ms / plan.high_ms) + " to " +
            Factor(plan.step_before_ms / plan.low_ms) + ")";
  }
  text += ".";
  const size_t predicted = static_cast<size_t>(
      std::ranges::count_if(report.findings, [](const Finding& finding) {
        return !IsNote(finding) && finding.gain_kind == GainKind::kPredicted;
      }));
  if (predicted > plan.ids.size()) {
    text += predicted - plan.ids.size() == 1
                ? " The other change would add little."
                : " The other changes would add little.";
  }
  if (SetsBatch(plan)) {
    text += " Batch-size gains are normalised to the recorded batch size.";
  }
  return text;
}

std::string VerdictInWords(const Report& report) {
  const bool damaged =
      std::ranges::any_of(report.findings, [](const Finding& f) {
        return f.id == "capture-incomplete" &&
               f.status == FindingStatus::kError;
      });
  if (damaged) return "No verdict: the recording is incomplete (see above).";
  if (report.clean.empty()) return "No verdict: no rule had the data it needs.";
  const std::string held = HeldBackInWords(report);
  if (!held.empty()) {
    return "No verdict: steps vary by " + Percent(report.steps.cov) +
           ", which is too much to confirm these gains: " + held +
           ". Record more steps or use a quieter machine; --verbose shows "
           "these findings.";
  }
  const std::string checks =
      Count(static_cast<int64_t>(report.clean.size()), "check") +
      " found nothing worth changing";
  const auto compute = report.time_split_ms.find("compute");
  const bool busy = compute != report.time_split_ms.end() &&
                    compute->second > kHealthyFrac * report.steps.mean_ms;
  if (busy) return "Healthy: " + checks + ".";
  return checks +
         ", but the step computes for less than half of its time (see above).";
}

bool IsNote(const Finding& finding) {
  return finding.severity == FindingSeverity::kNote &&
         finding.status == FindingStatus::kOk;
}

int NumberOf(const Report& report, const Finding& finding) {
  if (finding.severity == FindingSeverity::kNote) return 0;
  int number = 0;
  for (const Finding& one : report.findings) {
    number += one.severity != FindingSeverity::kNote;
    if (&one == &finding) break;
  }
  return number;
}

}  // namespace stepscope
