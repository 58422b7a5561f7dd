#include "chrome/reader/chrome_header_reader.h"

#include <string_view>
#include <utility>

#include "json/json_fields.h"
#include "rows/field_values.h"

namespace stepscope {
namespace {

// 12040 -> "12.4". CUDA's number is 1000 * major + 10 * minor.
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
  if (name.starts_with("Intel")) return "Intel";
  return is_hip ? "AMD" : "";
}

// The position in the list is the ordinal, unless the entry has an "id". Fields
// that a version of Kineto did not write stay unknown.
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
  // Only Kineto writes schemaVersion, so this key marks its files.
  int64_t version = 0;
  header->is_kineto = GetInteger(root, "schemaVersion", &version);
  int64_t base_ns = 0;
  if (GetInteger(root, "baseTimeNanoseconds", &base_ns) &&
      base_ns >= -kLargestNs && base_ns <= kLargestNs) {
    header->base_ns = base_ns;
  }
  GetFlag(root, "stepscope.timeline", &header->is_timeline);
  GetFlag(root, "record_shapes", &header->record_shapes);
  GetFlag(root, "profile_memory", &header->profile_memory);
  GetFlag(root, "with_stack", &header->with_stack);
  GetText(root, "host_name", &run.host);
  // ROCm builds of PyTorch write Kineto's keys with these instead of CUDA's.
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

}  // namespace

bool ReadChromeHeader(const std::string& json, ChromeHeader* header) {
  dom::parser parser;
  dom::object root;
  if (parser.parse(json).get(root)) return false;
  *header = ChromeHeader();
  ReadKinetoKeys(root, header);
  ReadOwnHeader(json, header);
  return true;
}

}  // namespace stepscope
