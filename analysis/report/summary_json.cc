// A TraceSummary as JSON. The schema is docs/json.md, `info`, version 1.
#include <stepscope/summary.h>

#include "report/json_text.h"

namespace stepscope {
namespace {

double Us(int64_t ns) { return static_cast<double>(ns) / 1000; }

void CountAndBytes(const char* key, const CopySummary& copies, JsonText& json) {
  json.Key(key);
  json.Open('{');
  json.Field("count", copies.count);
  json.Field("bytes", copies.bytes);
  json.Close('}');
}

void WriteSummaryRun(const RunInfo& run, JsonText& json) {
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

void WriteSteps(const StepSummary& steps, JsonText& json) {
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
  // Without steps this divides by 0, but then length() writes null anyway.
  length("mean_us", Us(steps.total_ns) / static_cast<double>(count));
  length("min_us", Us(steps.min_ns));
  length("max_us", Us(steps.max_ns));
  json.Close('}');
}

void WriteDevice(int32_t ordinal, const DeviceSummary& device, JsonText& json) {
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
  // Overlapped and exposed time add up to the busy time of the collectives.
  json.Field("overlap_comm_us",
             Us(device.collective_busy_ns - device.exposed_ns));
  json.Field("exposed_comm_us", Us(device.exposed_ns));
  json.Close('}');
}

void WriteCopies(const TraceSummary& summary, JsonText& json) {
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

void WriteLoader(const TraceSummary& summary, JsonText& json) {
  const LoaderSummary& loader = summary.loader;
  json.Key("dataloader");
  json.Open('{');
  json.Field("events", loader.waits);
  json.Field("us", Us(loader.ns));
  json.Key("in_steps_us");
  // Without marked steps the value is unknown, and 0 would be wrong.
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

void WriteMemory(const TraceSummary& summary, JsonText& json) {
  json.Key("memory_peaks");
  json.Open('[');
  for (const MemorySummary& memory : summary.memory) {
    json.Open('{');
    json.Field("device", memory.device);
    json.Field("step", memory.step);
    json.Field("peak_bytes", memory.peak_bytes);
    json.Field("reserved_bytes", memory.reserved_bytes);
    json.Field("op", memory.op);
    json.Field("counted", memory.is_counted);
    json.Close('}');
  }
  json.Close(']');
}

void WriteLosses(const TraceSummary& summary, JsonText& json) {
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

}  // namespace

std::string ToJson(const TraceSummary& summary) {
  JsonText json;
  json.Open('{');
  json.Field("version", 1);
  WriteSummaryRun(summary.run, json);
  WriteSteps(summary.steps, json);
  json.Key("gpu");
  json.Open('{');
  for (const auto& [ordinal, device] : summary.devices)
    WriteDevice(ordinal, device, json);
  json.Close('}');
  WriteCopies(summary, json);
  WriteLoader(summary, json);
  WriteMemory(summary, json);
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

}  // namespace stepscope
