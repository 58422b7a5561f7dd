#include "report/page/details_json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "report/json_text.h"

namespace stepscope {
namespace {

// Times in drawings have a resolution of 0.1 us.
double Tenths(double us) { return std::round(us * 10) / 10; }

// Writes each block as four numbers: start, length, index of the cause, index
// of the name.
void WriteStep(const PageStep& step,
               std::map<std::string_view, int32_t>& causes, JsonText& json) {
  json.Open('{');
  json.Field("step", step.number);
  json.Field("length_us", (step.end_ns - step.begin_ns) * 1e-3);
  json.Key("lanes");
  json.Open('[');
  for (const PageLane& lane : step.lanes) {
    json.Open('{');
    json.Field("name", lane.name);
    json.Key("blocks");
    json.Open('[');
    for (const PageBlock& block : lane.blocks) {
      // Causes are numbered in the order in which they first occur.
      // WriteSteps() lists them in that order.
      const auto [cause, is_new] =
          causes.try_emplace(block.cause, static_cast<int32_t>(causes.size()));
      json.Open('[');
      json.Value(Tenths(block.begin_us));
      json.Value(Tenths(block.length_us));
      json.Value(cause->second);
      json.Value(static_cast<int64_t>(block.name));
      json.Close(']');
    }
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
}

void WriteSteps(const PageDetails& details, JsonText& json) {
  std::map<std::string_view, int32_t> causes;
  json.Key("steps");
  json.Open('[');
  for (const PageStep& step : details.steps) WriteStep(step, causes, json);
  json.Close(']');
  std::vector<std::string_view> in_order(causes.size());
  for (const auto& [cause, index] : causes) {
    in_order[static_cast<size_t>(index)] = cause;
  }
  json.Texts("causes", in_order);
  json.Texts("names", details.names);
}

// Writes each example as five numbers: index of the finding, index of the
// example, index of the drawn step, start in us since the step's start, and
// length in us.
void WriteExamples(const PageDetails& details, const Report& report,
                   JsonText& json) {
  json.Key("examples");
  json.Open('[');
  for (size_t f = 0; f < report.findings.size(); ++f) {
    const Finding& finding = report.findings[f];
    for (size_t e = 0; e < finding.examples.size(); ++e) {
      const Example& example = finding.examples[e];
      // Matches by time, because examples have no number.
      const auto drawn =
          std::ranges::find_if(details.examples, [&](const PageExample& one) {
            return one.begin_ns == example.begin_ns &&
                   one.end_ns == example.end_ns;
          });
      // The step of the example was not drawn, because there was no room.
      if (drawn == details.examples.end()) continue;
      const PageStep& step = details.steps[drawn->step];
      json.Open('{');
      json.Field("finding", static_cast<int64_t>(f));
      json.Field("example", static_cast<int64_t>(e));
      json.Field("step", static_cast<int64_t>(drawn->step));
      json.Field("begin_us", Tenths((example.begin_ns - step.begin_ns) * 1e-3));
      json.Field("length_us",
                 Tenths((example.end_ns - example.begin_ns) * 1e-3));
      json.Close('}');
    }
  }
  json.Close(']');
}

void WriteKernels(const PageDetails& details, JsonText& json) {
  json.Field("peaks_device", details.peaks_device);
  json.Field("peaks_exact", details.peaks_exact);
  json.Field("kernel_count", details.kernel_count);
  json.Field("kernels_ms", details.kernels_ms);
  json.Field("eligible_ms", details.eligible_ms);
  json.Field("tensor_cores_ms", details.tensor_cores_ms);
  json.Key("kernels");
  json.Open('[');
  for (const PageKernel& kernel : details.kernels) {
    json.Open('{');
    json.Field("name", kernel.name);
    WriteFusedOps(kernel.name, json);
    json.Field("kind", kernel.kind);
    json.Field("precision", kernel.precision);
    json.Field("tensor_cores", kernel.tensor_cores);
    json.Field("eligible", kernel.eligible);
    json.Field("ms", kernel.ms);
    json.Field("calls", kernel.calls);
    json.Field("occupancy_frac", kernel.occupancy_frac);
    json.Field("flops_per_s", kernel.flops_per_s);
    json.Field("bytes_per_s", kernel.bytes_per_s);
    json.Field("roofline_frac", kernel.roofline_frac);
    json.Close('}');
  }
  json.Close(']');
}

void WriteTransfers(const PageDetails& details, JsonText& json) {
  json.Key("copies");
  json.Open('[');
  for (const PageCopy& copy : details.copies) {
    json.Open('{');
    json.Field("kind", copy.kind);
    json.Field("ms", copy.ms);
    json.Field("calls", copy.calls);
    json.Field("bytes", copy.bytes);
    json.Close('}');
  }
  json.Close(']');
  json.Key("collectives");
  json.Open('[');
  for (const PageCollective& one : details.collectives) {
    json.Open('{');
    json.Field("kind", one.kind);
    json.Field("group", one.group);
    json.Field("group_size", one.group_size);
    json.Field("ms", one.ms);
    json.Field("exposed_ms", one.exposed_ms);
    json.Field("calls", one.calls);
    json.Field("bytes", one.bytes);
    json.Close('}');
  }
  json.Close(']');
}

void WriteMemory(const PageDetails& details, JsonText& json) {
  json.Key("memory");
  json.Open('[');
  for (const PageMemory& memory : details.memory) {
    json.Open('{');
    json.Field("device", memory.device);
    json.Field("step", memory.step);
    json.Field("length_us", memory.length_us);
    json.Field("peak_us", memory.peak_us);
    json.Field("peak_bytes", memory.peak_bytes);
    json.Field("older_bytes", memory.older_bytes);
    json.Texts("time_us", memory.time_us);
    json.Texts("bytes", memory.bytes);
    json.Key("owners");
    json.Open('[');
    for (const PageMemory::Owner& owner : memory.owners) {
      json.Open('{');
      json.Field("op", owner.op);
      json.Field("bytes", owner.bytes);
      json.Field("blocks", owner.blocks);
      json.Close('}');
    }
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
}

void WriteCounters(const PageDetails& details, JsonText& json) {
  json.Key("devices");
  json.Open('[');
  for (const PageDevice& device : details.devices) {
    json.Open('{');
    json.Field("ordinal", device.ordinal);
    json.Field("power_limit_w", device.power_limit_w);
    json.Key("samples");
    json.Open('[');
    for (const PageSample& sample : device.samples) {
      json.Open('{');
      json.Field("time_ms", sample.time_ms);
      json.Field("sm_clock_mhz", sample.sm_clock_mhz);
      json.Field("power_w", sample.power_w);
      json.Field("temperature_c", sample.temperature_c);
      json.Field("sm_active_frac", sample.sm_active_frac);
      json.Field("tensor_active_frac", sample.tensor_active_frac);
      json.Field("dram_frac", sample.dram_frac);
      json.Field("allocated_bytes", sample.allocated_bytes);
      json.Field("reserved_bytes", sample.reserved_bytes);
      json.Close('}');
    }
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
  json.Key("host");
  json.Open('[');
  for (const PageHost& host : details.host) {
    json.Open('{');
    json.Field("step", host.step);
    json.Field("process_cores", host.process_cores);
    json.Field("training_thread_frac", host.training_thread_frac);
    json.Field("run_delay_frac", host.run_delay_frac);
    json.Field("loader_cores", host.loader_cores);
    json.Field("read_bytes_per_s", host.read_bytes_per_s);
    json.Close('}');
  }
  json.Close(']');
  json.Key("loaders");
  json.Open('[');
  for (const PageLoader& loader : details.loaders) {
    json.Open('{');
    json.Field("name", loader.name);
    json.Field("kind", loader.kind);
    json.Field("workers", loader.workers);
    json.Field("batch_size", loader.batch_size);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

void WriteDetails(const PageDetails& details, const Report& report,
                  JsonText& json) {
  json.Open('{');
  json.Field("rank", details.rank);
  WriteSteps(details, json);
  WriteExamples(details, report, json);
  WriteKernels(details, json);
  WriteTransfers(details, json);
  WriteMemory(details, json);
  WriteCounters(details, json);
  json.Close('}');
}

}  // namespace stepscope
