// A TraceSummary as text.
#include <stepscope/printable.h>
#include <stepscope/summary.h>

#include <cstdio>
#include <map>

#include "report/step_text.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A line of the text form: a label in its column, then the rest.
class Lines {
 public:
  void Add(std::string_view label, const std::string& rest) {
    text_ += label;
    text_.append(label.size() < kColumn ? kColumn - label.size() : 1, ' ');
    text_ += Printable(rest);
    text_ += '\n';
  }
  std::string Take() { return std::move(text_); }

 private:
  static constexpr size_t kColumn = 12;
  std::string text_;
};

std::string Ms(int64_t ns) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.3f ms", static_cast<double>(ns) / 1e6);
  return text;
}

std::string DeviceNames(const RunInfo& run) {
  std::vector<std::pair<std::string, int>> counts;
  for (const Device& device : run.devices) {
    const std::string name = device.name.empty() ? "unnamed" : device.name;
    // Neighbours of one name are counted: "8 x NVIDIA H100".
    if (counts.empty() || counts.back().first != name) {
      counts.emplace_back(name, 1);
    } else {
      ++counts.back().second;
    }
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    if (!text.empty()) text += ", ";
    text += std::to_string(count) + " x " + name;
  }
  return text.empty() ? "none named" : text;
}

std::string StepsText(const StepSummary& steps) {
  if (steps.numbers.empty()) return "none marked";
  const auto count = static_cast<int64_t>(steps.numbers.size());
  std::string text = std::to_string(count) + " x " +
                     Ms(steps.total_ns / count) + " (" + Ms(steps.min_ns) +
                     " to " + Ms(steps.max_ns) + "), number " +
                     std::to_string(steps.numbers.front());
  if (count > 1) text += " to " + std::to_string(steps.numbers.back());
  return text;
}

std::string DeviceText(const DeviceSummary& device) {
  std::string text =
      Count(device.kernels, "kernel") + ", busy " + Ms(device.kernel_busy_ns) +
      "; with " + Count(device.copies, "copy", "copies") + " and " +
      Count(device.memsets, "memset") + " busy " + Ms(device.busy_ns) + " of " +
      Ms(device.span_ns) + " on " + Count(device.streams, "stream");
  if (device.collectives > 0) {
    text += "; " + Count(device.collectives, "collective") + " busy " +
            Ms(device.collective_busy_ns) + ", exposed " +
            Ms(device.exposed_ns);
  }
  return text;
}

}  // namespace

std::string ToText(const TraceSummary& summary) {
  const RunInfo& run = summary.run;
  Lines lines;
  lines.Add("file", run.source);
  if (!run.producer.empty()) lines.Add("made by", run.producer);
  lines.Add("rank", run.rank < 0
                        ? "unknown"
                        : std::to_string(run.rank) +
                              (run.world_size > 0
                                   ? " of " + std::to_string(run.world_size)
                                   : ""));
  lines.Add("devices", DeviceNames(run));
  lines.Add("steps", StepsText(summary.steps));
  for (const auto& [ordinal, device] : summary.devices)
    lines.Add("gpu " + std::to_string(ordinal), DeviceText(device));
  for (const auto& [kinds, copies] : summary.copies) {
    lines.Add("copies", kinds + ": " + std::to_string(copies.count) + ", " +
                            Bytes(static_cast<double>(copies.bytes)) + " in " +
                            Ms(copies.ns));
  }
  for (const std::string& peak : MemoryPeakLines(summary.memory)) {
    lines.Add("memory", peak);
  }
  for (const auto& [name, count] : summary.loader.names)
    lines.Add("loader", std::to_string(count) + " x " + name);
  if (summary.loader.waits > 0)
    lines.Add("", "waited for " + Ms(summary.loader.ns));
  std::string events;
  for (const auto& [kind, count] : summary.rows) {
    if (!events.empty()) events += ", ";
    events += kind + " " + std::to_string(count);
  }
  lines.Add("events", events.empty() ? "none" : events);
  if (summary.work_without_call > 0) {
    lines.Add("", Count(summary.work_without_call, "device event") +
                      " without a recorded launch");
  }
  if (summary.losses.empty()) lines.Add("losses", "none");
  for (const Loss& loss : summary.losses)
    lines.Add("losses", loss.name + ": " + loss.detail);
  return lines.Take();
}

}  // namespace stepscope
