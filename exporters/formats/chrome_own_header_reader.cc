// The object "stepscope" of our own Chrome traces (declared in
// chrome_header_reader.h; the dialect is in exporters/README.md).
#include <string_view>
#include <utility>

#include "chrome_header_reader.h"
#include "json_get_reader.h"

namespace stepscope {
namespace {

void ReadOurDevice(dom::object item, Device* device) {
  GetInteger(item, "ordinal", &device->ordinal);
  GetText(item, "name", &device->name);
  GetText(item, "vendor", &device->vendor);
  GetInteger(item, "memory_bytes", &device->memory_bytes);
  GetInteger(item, "compute_major", &device->compute_major);
  GetInteger(item, "compute_minor", &device->compute_minor);
  GetInteger(item, "sm_count", &device->sm_count);
  GetInteger(item, "max_threads_per_sm", &device->max_threads_per_sm);
  GetInteger(item, "warp_size", &device->warp_size);
  GetInteger(item, "regs_per_sm", &device->regs_per_sm);
  GetInteger(item, "shared_memory_per_sm_bytes",
             &device->shared_memory_per_sm_bytes);
  GetInteger(item, "clock_khz", &device->clock_khz);
  GetInteger(item, "memory_bandwidth_bytes_per_s",
             &device->memory_bandwidth_bytes_per_s);
}

void ReadOurRun(dom::object item, RunInfo* run) {
  *run = RunInfo();
  GetText(item, "name", &run->name);
  GetText(item, "host", &run->host);
  GetInteger(item, "pid", &run->pid);
  GetInteger(item, "rank", &run->rank);
  GetInteger(item, "world_size", &run->world_size);
  GetText(item, "backend", &run->backend);
  GetText(item, "run_id", &run->run_id);
  GetInteger(item, "cycle", &run->cycle);
  GetText(item, "producer", &run->producer);
  GetInteger(item, "window_begin_ns", &run->window_begin_ns);
  GetInteger(item, "window_end_ns", &run->window_end_ns);
  ForEachObject(item, "devices", [&](dom::object device) {
    ReadOurDevice(device, &run->devices.emplace_back());
  });
  GetText(item, "cpu_model", &run->cpu_model);
  GetInteger(item, "usable_cores", &run->usable_cores);
  GetInteger(item, "local_ranks", &run->local_ranks);
  int64_t training_thread = -1;
  if (GetInteger(item, "training_thread", &training_thread) &&
      training_thread >= 0) {
    run->training_thread = static_cast<RowId>(training_thread);
  }
  GetText(item, "torch_version", &run->torch_version);
  GetText(item, "cuda_version", &run->cuda_version);
  GetFlag(item, "record_shapes", &run->record_shapes);
  GetFlag(item, "profile_memory", &run->profile_memory);
  GetFlag(item, "with_stack", &run->with_stack);
  dom::array waits;
  if (!item["wait_step_ns"].get(waits)) {
    for (dom::element wait : waits) {
      int64_t ns = 0;
      if (!wait.get(ns)) run->wait_step_ns.push_back(ns);
    }
  }
  GetReal(item, "op_cost_ns", &run->op_cost_ns);
  GetReal(item, "clock_error_ns", &run->clock_error_ns);
}

void ReadOurThreads(dom::object ours, ChromeHeader* header) {
  dom::array list;
  if (ours["threads"].get(list)) return;
  for (dom::element element : list) {
    ChromeHeader::FileThread thread;
    dom::array row;
    if (element.get(row)) continue;
    uint64_t torch_thread = 0;
    std::string_view name;
    if (row.at(0).get(thread.thread.pid) || row.at(1).get(thread.thread.tid) ||
        row.at(2).get(torch_thread) || row.at(3).get(name)) {
      continue;
    }
    thread.thread.torch_thread = torch_thread;
    thread.name = std::string(name);
    if (row.at(4).get(thread.pid)) thread.pid = thread.thread.pid;
    if (row.at(5).get(thread.tid)) thread.tid = thread.thread.tid;
    header->threads.push_back(std::move(thread));
  }
}

void ReadObject(dom::object ours, ChromeHeader* header) {
  header->is_ours = true;
  std::string flavour;
  GetText(ours, "flavour", &flavour);
  header->is_tb_flavour = flavour == "tb";
  dom::object run;
  if (!ours["run"].get(run)) ReadOurRun(run, &header->run);
  ReadOurThreads(ours, header);
  dom::array watched;
  if (!ours["watched"].get(watched)) {
    for (dom::element element : watched) {
      std::string_view name;
      if (element.get(name)) continue;
      for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
        if (name == KindName(static_cast<Kind>(kind)))
          header->watched.push_back(static_cast<Kind>(kind));
      }
    }
  }
  ForEachObject(ours, "losses", [&](dom::object item) {
    Loss loss;
    GetText(item, "name", &loss.name);
    GetText(item, "detail", &loss.detail);
    GetInteger(item, "count", &loss.count);
    int64_t severity = static_cast<int64_t>(loss.severity);
    GetInteger(item, "severity", &severity);
    if (severity >= 0 && severity <= static_cast<int64_t>(Severity::kError))
      loss.severity = static_cast<Severity>(severity);
    header->losses.push_back(std::move(loss));
  });
}

void AddSettings(dom::object item, TraceBuilder* builder) {
  Settings row;
  GetInteger(item, "step", &row.step);
  GetInteger(item, "time_ns", &row.time_ns);
  GetInteger(item, "grad_mode", &row.grad_mode);
  GetInteger(item, "inference_mode", &row.inference_mode);
  GetInteger(item, "autocast_cpu", &row.autocast_cpu);
  GetInteger(item, "autocast_cuda", &row.autocast_cuda);
  GetInteger(item, "cudnn_enabled", &row.cudnn_enabled);
  GetInteger(item, "cudnn_benchmark", &row.cudnn_benchmark);
  GetInteger(item, "deterministic", &row.deterministic);
  GetInteger(item, "tf32_cublas", &row.tf32_cublas);
  GetInteger(item, "tf32_cudnn", &row.tf32_cudnn);
  GetInteger(item, "anomaly_mode", &row.anomaly_mode);
  GetInteger(item, "intra_op_threads", &row.intra_op_threads);
  GetInteger(item, "inter_op_threads", &row.inter_op_threads);
  std::string text;
  GetText(item, "autocast_dtype", &text);
  row.autocast_dtype = builder->Intern(text);
  text.clear();
  GetText(item, "matmul_precision", &text);
  row.matmul_precision = builder->Intern(text);
  builder->Add(row);
}

void AddHostUsage(dom::object item, TraceBuilder* builder) {
  HostUsage row;
  GetInteger(item, "step", &row.step);
  GetInteger(item, "begin_ns", &row.begin_ns);
  GetInteger(item, "end_ns", &row.end_ns);
  GetInteger(item, "process_cpu_ns", &row.process_cpu_ns);
  GetInteger(item, "training_thread_cpu_ns", &row.training_thread_cpu_ns);
  GetInteger(item, "run_delay_ns", &row.run_delay_ns);
  GetInteger(item, "involuntary_switches", &row.involuntary_switches);
  GetInteger(item, "read_bytes", &row.read_bytes);
  GetInteger(item, "write_bytes", &row.write_bytes);
  GetInteger(item, "loader_cpu_ns", &row.loader_cpu_ns);
  GetInteger(item, "loader_read_bytes", &row.loader_read_bytes);
  GetInteger(item, "loader_workers", &row.loader_workers);
  builder->Add(row);
}

void AddLoader(dom::object item, TraceBuilder* builder) {
  Loader row;
  std::string text;
  GetText(item, "name", &text);
  row.name = builder->Intern(text);
  text.clear();
  GetText(item, "kind", &text);
  row.kind = builder->Intern(text);
  GetInteger(item, "workers", &row.workers);
  GetInteger(item, "batch_size", &row.batch_size);
  builder->Add(row);
}

}  // namespace

void ReadOwnHeader(const std::string& json, ChromeHeader* header) {
  dom::parser parser;
  dom::object root;
  dom::object ours;
  if (parser.parse(json).get(root) || root["stepscope"].get(ours)) return;
  ReadObject(ours, header);
}

void AddHeaderRows(const std::string& json, TraceBuilder* builder) {
  dom::parser parser;
  dom::object root;
  dom::object ours;
  if (parser.parse(json).get(root) || root["stepscope"].get(ours)) return;
  ForEachObject(ours, "settings",
                [&](dom::object item) { AddSettings(item, builder); });
  ForEachObject(ours, "host_usage",
                [&](dom::object item) { AddHostUsage(item, builder); });
  ForEachObject(ours, "loaders",
                [&](dom::object item) { AddLoader(item, builder); });
}

}  // namespace stepscope
