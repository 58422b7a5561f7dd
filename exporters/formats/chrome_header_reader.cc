#include "chrome_header_reader.h"

#include <simdjson.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace stepscope {
namespace {

namespace dom = simdjson::dom;

// Sets `*value` from the number or text under `key`; leaves it if there is
// none.
template <typename Integer>
bool GetInteger(dom::object object, std::string_view key, Integer* value) {
  dom::element element;
  if (object[key].get(element)) return false;
  int64_t number = 0;
  double real = 0;
  bool flag = false;
  std::string_view text;
  if (!element.get(number)) {
    *value = static_cast<Integer>(number);
  } else if (!element.get(real)) {
    if (!(real > -9e18 && real < 9e18)) return false;
    *value = static_cast<Integer>(static_cast<int64_t>(real));
  } else if (!element.get(flag)) {
    *value = static_cast<Integer>(flag);
  } else if (!element.get(text)) {
    char* end = nullptr;
    const std::string copy(text);
    number = std::strtoll(copy.c_str(), &end, 10);
    if (copy.empty() || *end != '\0') return false;
    *value = static_cast<Integer>(number);
  } else {
    return false;
  }
  return true;
}

void GetReal(dom::object object, std::string_view key, double* value) {
  double real = 0;
  if (!object[key].get(real)) *value = real;
}

void GetText(dom::object object, std::string_view key, std::string* value) {
  std::string_view text;
  if (!object[key].get(text)) *value = std::string(text);
}

void GetFlag(dom::object object, std::string_view key, bool* value) {
  int64_t number = 0;
  if (GetInteger(object, key, &number)) *value = number != 0;
}

// Calls `visit` with each object of the list under `key`.
template <typename Visit>
void ForEachObject(dom::object object, std::string_view key, Visit visit) {
  dom::array list;
  if (object[key].get(list)) return;
  for (dom::element element : list) {
    dom::object item;
    if (!element.get(item)) visit(item);
  }
}

// 12040 -> "12.4".
std::string CudaVersion(int64_t version) {
  if (version <= 0) return "";
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

std::string VendorOf(const std::string& name, bool is_hip) {
  for (std::string_view word : {"AMD", "Radeon", "Instinct"}) {
    if (name.find(word) != std::string::npos) return "AMD";
  }
  for (std::string_view word :
       {"NVIDIA", "Tesla", "Quadro", "GeForce", "TITAN"}) {
    if (name.find(word) != std::string::npos) return "Nvidia";
  }
  return is_hip ? "AMD" : "";
}

void ReadKinetoDevices(dom::object root, bool is_hip, RunInfo* run) {
  run->devices.clear();
  ForEachObject(root, "deviceProperties", [&](dom::object item) {
    Device device;
    device.ordinal = static_cast<int32_t>(run->devices.size());
    GetInteger(item, "id", &device.ordinal);
    GetText(item, "name", &device.name);
    GetInteger(item, "totalGlobalMem", &device.memory_bytes);
    GetInteger(item, "computeMajor", &device.compute_major);
    GetInteger(item, "computeMinor", &device.compute_minor);
    GetInteger(item, "numSms", &device.sm_count);
    GetInteger(item, "maxThreadsPerMultiprocessor", &device.max_threads_per_sm);
    GetInteger(item, "warpSize", &device.warp_size);
    GetInteger(item, "regsPerMultiprocessor", &device.regs_per_sm);
    GetInteger(item, "maxSharedMemoryPerMultiProcessor",
               &device.shared_memory_per_sm_bytes);
    GetInteger(item, "sharedMemPerMultiprocessor",
               &device.shared_memory_per_sm_bytes);
    device.vendor = VendorOf(device.name, is_hip);
    run->devices.push_back(std::move(device));
  });
}

void ReadKinetoKeys(dom::object root, ChromeHeader* header) {
  RunInfo& run = header->run;
  int64_t version = 0;
  header->is_kineto = GetInteger(root, "schemaVersion", &version);
  GetInteger(root, "baseTimeNanoseconds", &header->base_ns);
  GetFlag(root, "record_shapes", &header->record_shapes);
  GetFlag(root, "profile_memory", &header->profile_memory);
  GetFlag(root, "with_stack", &header->with_stack);
  GetText(root, "host_name", &run.host);
  bool is_hip = false;
  for (std::string_view key :
       {"hip_runtime_version", "hip_driver_version", "roctracer_version"}) {
    dom::element element;
    is_hip = is_hip || !root[key].get(element);
  }
  int64_t cuda = 0;
  if (GetInteger(root, "cuda_runtime_version", &cuda))
    run.cuda_version = CudaVersion(cuda);
  dom::object distributed;
  if (!root["distributedInfo"].get(distributed)) {
    GetInteger(distributed, "rank", &run.rank);
    GetInteger(distributed, "world_size", &run.world_size);
    GetText(distributed, "backend", &run.backend);
  }
  ReadKinetoDevices(root, is_hip, &run);
}

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

void ReadOurObject(dom::object ours, ChromeHeader* header) {
  header->is_ours = true;
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

bool ReadChromeHeader(const std::string& json, ChromeHeader* header) {
  dom::parser parser;
  dom::object root;
  if (parser.parse(json).get(root)) return false;
  *header = ChromeHeader();
  dom::object ours;
  ReadKinetoKeys(root, header);
  if (!root["stepscope"].get(ours)) ReadOurObject(ours, header);
  return true;
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
