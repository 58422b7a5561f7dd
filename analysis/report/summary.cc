// A TraceSummary as JSON and as text.
#include <stepscope/summary.h>

#include <cstdio>

#include "json_text.h"
#include "words.h"

namespace stepscope {
namespace {

double Us(int64_t ns) { return static_cast<double>(ns) / 1000; }

void CountAndBytes(const char* key, const CopySummary& copies, Json& json) {
  json.Key(key);
  json.Open('{');
  json.Field("count", copies.count);
  json.Field("bytes", copies.bytes);
  json.Close('}');
}

void WriteRun(const RunInfo& run, Json& json) {
  json.Field("file", run.source);
  json.Field("producer", run.producer);
  json.Field("host", run.host);
  json.Field("run_id", run.run_id);
  json.Field("cycle", run.cycle);
  json.Field("rank", run.rank);
  json.Field("world_size", run.world_size);
  json.Field("backend", run.backend);
  json.Key("devices");
  json.Open('[');
  for (const Device& device : run.devices) {
    json.Open('{');
    json.Field("ordinal", device.ordinal);
    json.Field("name", device.name);
    json.Field("memory_bytes", device.memory_bytes);
    json.Field("sm_count", device.sm_count);
    json.Close('}');
  }
  json.Close(']');
}

void WriteSteps(const StepSummary& steps, Json& json) {
  json.Key("steps");
  json.Open('{');
  const auto count = static_cast<int64_t>(steps.numbers.size());
  json.Field("count", count);
  json.Texts("ids", steps.numbers);
  json.Field("total_us", Us(steps.total_ns));
  const auto length = [&](const char* key, double us) {
    json.Key(key);
    if (count == 0) {
      json.Null();
    } else {
      json.Value(us);
    }
  };
  length("mean_us", Us(steps.total_ns) / static_cast<double>(count));
  length("min_us", Us(steps.min_ns));
  length("max_us", Us(steps.max_ns));
  json.Close('}');
}

void WriteDevice(int32_t ordinal, const DeviceSummary& device, Json& json) {
  json.Key(std::to_string(ordinal));
  json.Open('{');
  json.Field("streams", device.streams);
  json.Field("kernels", device.kernels);
  json.Field("memcpys", device.copies);
  json.Field("memsets", device.memsets);
  json.Field("kernel_sum_us", Us(device.kernel_sum_ns));
  json.Field("kernel_busy_us", Us(device.kernel_busy_ns));
  json.Field("gpu_busy_us", Us(device.busy_ns));
  json.Field("span_us", Us(device.span_ns));
  json.Field("comm_kernels", device.collectives);
  json.Field("comm_sum_us", Us(device.collective_sum_ns));
  json.Field("comm_busy_us", Us(device.collective_busy_ns));
  json.Field("overlap_comm_us",
             Us(device.collective_busy_ns - device.exposed_ns));
  json.Field("exposed_comm_us", Us(device.exposed_ns));
  json.Close('}');
}

void WriteCopies(const TraceSummary& summary, Json& json) {
  json.Key("memcpy_h2d");
  json.Open('{');
  CountAndBytes("pageable", summary.uploads_pageable, json);
  CountAndBytes("pinned", summary.uploads_pinned, json);
  CountAndBytes("unknown", summary.uploads_unknown, json);
  json.Close('}');
  json.Key("memcpy");
  json.Open('{');
  for (const auto& [kinds, copies] : summary.copies) {
    json.Key(kinds);
    json.Open('{');
    json.Field("count", copies.count);
    json.Field("bytes", copies.bytes);
    json.Field("us", Us(copies.ns));
    json.Close('}');
  }
  json.Close('}');
}

void WriteLoader(const TraceSummary& summary, Json& json) {
  const LoaderSummary& loader = summary.loader;
  json.Key("dataloader");
  json.Open('{');
  json.Field("events", loader.waits);
  json.Field("us", Us(loader.ns));
  json.Key("in_steps_us");
  if (summary.steps.numbers.empty()) {
    json.Null();
  } else {
    json.Value(Us(loader.in_steps_ns));
  }
  json.Key("names");
  json.Open('{');
  for (const auto& [name, count] : loader.names) json.Field(name, count);
  json.Close('}');
  json.Close('}');
}

void WriteLosses(const TraceSummary& summary, Json& json) {
  static constexpr const char* kSeverities[] = {"note", "warning", "error"};
  json.Key("losses");
  json.Open('[');
  for (const Loss& loss : summary.losses) {
    json.Open('{');
    json.Field("name", loss.name);
    json.Field("count", loss.count);
    json.Field("severity", kSeverities[static_cast<size_t>(loss.severity)]);
    json.Field("detail", loss.detail);
    json.Close('}');
  }
  json.Close(']');
}

// A line of the text form: a label in its column, then the rest.
class Lines {
 public:
  void Add(std::string_view label, const std::string& rest) {
    text_ += label;
    text_.append(label.size() < kColumn ? kColumn - label.size() : 1, ' ');
    text_ += rest;
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

std::string ToJson(const TraceSummary& summary) {
  Json json;
  json.Open('{');
  json.Field("version", 1);
  WriteRun(summary.run, json);
  WriteSteps(summary.steps, json);
  json.Key("gpu");
  json.Open('{');
  for (const auto& [ordinal, device] : summary.devices)
    WriteDevice(ordinal, device, json);
  json.Close('}');
  WriteCopies(summary, json);
  WriteLoader(summary, json);
  json.Key("ops");
  json.Open('{');
  json.Field("distinct", summary.ops_distinct);
  json.Field("with_shapes", summary.ops_with_shapes);
  json.Field("with_stack", summary.ops_with_stacks);
  json.Close('}');
  json.Field("gpu_events_without_launch_call", summary.work_without_call);
  json.Key("events");
  json.Open('{');
  for (const auto& [kind, count] : summary.rows) json.Field(kind, count);
  json.Close('}');
  json.Texts("watched", summary.watched);
  WriteLosses(summary, json);
  json.Close('}');
  return json.Take();
}

std::string ToText(const TraceSummary& summary) {
  const RunInfo& run = summary.run;
  Lines lines;
  lines.Add("file", run.source);
  if (!run.producer.empty()) lines.Add("made by", run.producer);
  lines.Add("rank", run.rank < 0
                        ? "not said"
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
