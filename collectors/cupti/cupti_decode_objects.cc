// Devices, contexts, streams, their names, memory and clocks.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cupti_decoder.h"

namespace stepscope {
namespace {

constexpr uint32_t kMostDevices =
    1 << 12;  // a damaged record may hold any number

const char* PoolOperation(uint32_t type) {
  switch (type) {
    case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED:
      return "pool created";
    case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED:
      return "pool destroyed";
    case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED:
      return "pool trimmed";
    default:
      return "pool operation";
  }
}

}  // namespace

MemoryKind MemoryKindOf(uint32_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return MemoryKind::kPageable;
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return MemoryKind::kPinned;
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC:
      return MemoryKind::kDevice;
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
      return MemoryKind::kArray;
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC:
      return MemoryKind::kManaged;
    default:
      return MemoryKind::kUnknown;
  }
}

// Occupancy needs limits that no kernel record has.
const DeviceLimits& CuptiDecoder::LimitsOf(int32_t device) {
  static const DeviceLimits kUnknown;
  const auto index = static_cast<size_t>(device);
  return device >= 0 && index < devices_.size() ? devices_[index] : kUnknown;
}

// Null for a device that the process does not see. The driver numbers those
// that it sees, as kernels do; CUPTI's own number counts all of the machine.
// With MIG the driver knows the instance alone.
DeviceLimits* CuptiDecoder::DeviceOf(const CUpti_ActivityDevice5& record) {
  if (record.isCudaVisible == 0) return nullptr;
  if (has_uuids_) {
    const auto is_it = [&](const DeviceLimits& device) {
      const auto* uuid =
          record.isMigEnabled != 0 ? &record.migUuid : &record.uuid;
      return std::memcmp(uuid, device.uuid.data(), device.uuid.size()) == 0;
    };
    const auto device = std::find_if(devices_.begin(), devices_.end(), is_it);
    return device == devices_.end() ? nullptr : &*device;
  }
  if (record.id >= kMostDevices) return nullptr;
  if (devices_.size() <= record.id) devices_.resize(record.id + 1);
  devices_[record.id].ordinal = static_cast<int32_t>(record.id);
  return &devices_[record.id];
}

void CuptiDecoder::AddDevice(const RecordBytes& bytes) {
  using Record = CUpti_ActivityDevice5;
  if (!Has(bytes, offsetof(Record, isCudaVisible) + 1)) return;
  const auto record = bytes.As<Record>();
  DeviceLimits* const visible = DeviceOf(record);
  if (visible == nullptr) return;
  DeviceLimits& device = *visible;
  if (const std::string_view name = TextOf(record.name); !name.empty()) {
    device.name = name;
  }
  device.memory_bytes = static_cast<int64_t>(record.globalMemorySize);
  // CUPTI counts in kbytes per second.
  device.memory_bandwidth_bytes_per_s =
      static_cast<int64_t>(
          std::min<uint64_t>(record.globalMemoryBandwidth, INT64_MAX / 1000)) *
      1000;
  device.clock_khz = static_cast<int32_t>(record.coreClockRate);
  device.compute_major = static_cast<int32_t>(record.computeCapabilityMajor);
  device.compute_minor = static_cast<int32_t>(record.computeCapabilityMinor);
  device.sm_count = static_cast<int32_t>(record.numMultiprocessors);
  device.warp_size = static_cast<int32_t>(record.numThreadsPerWarp);
  device.max_threads_per_sm = static_cast<int32_t>(std::min<uint64_t>(
      uint64_t{record.maxWarpsPerMultiprocessor} * record.numThreadsPerWarp,
      INT32_MAX));
  device.max_blocks_per_sm =
      static_cast<int32_t>(record.maxBlocksPerMultiprocessor);
  device.regs_per_sm =
      static_cast<int32_t>(record.maxRegistersPerMultiprocessor);
  device.regs_per_block = static_cast<int32_t>(record.maxRegistersPerBlock);
  device.shared_bytes_per_sm =
      static_cast<int32_t>(record.maxSharedMemoryPerMultiprocessor);
}

// Devices that another source has listed already stay as they are.
void CuptiDecoder::AddDevices() {
  std::vector<Device>& known = builder_.run().devices;
  for (const DeviceLimits& device : devices_) {
    // A gap in the ordinals: no record described this device.
    if (device.sm_count <= 0) continue;
    const bool there = std::any_of(
        known.begin(), known.end(),
        [&](const Device& other) { return other.ordinal == device.ordinal; });
    if (there) continue;
    known.push_back(
        {.ordinal = device.ordinal,
         .name = device.name,
         .vendor = "Nvidia",
         .memory_bytes = device.memory_bytes,
         .compute_major = device.compute_major,
         .compute_minor = device.compute_minor,
         .sm_count = device.sm_count,
         .max_threads_per_sm = device.max_threads_per_sm,
         .warp_size = device.warp_size,
         .regs_per_sm = device.regs_per_sm,
         .shared_memory_per_sm_bytes = device.shared_bytes_per_sm,
         .clock_khz = device.clock_khz,
         .memory_bandwidth_bytes_per_s = device.memory_bandwidth_bytes_per_s});
  }
}

void CuptiDecoder::AddContext(const RecordBytes& bytes) {
  using Record = CUpti_ActivityContext3;
  if (!Has(bytes, offsetof(Record, parentContextId))) return;
  const auto record = bytes.As<Record>();
  device_of_context_[record.contextId] = static_cast<int32_t>(record.deviceId);
  null_stream_of_context_[record.contextId] = record.nullStreamId;
}

void CuptiDecoder::AddStream(const RecordBytes& bytes) {
  using Record = CUpti_ActivityStream;
  if (!Has(bytes, sizeof(Record))) return;
  const auto record = bytes.As<Record>();
  const uint32_t flag = NumberOf(record.flag);
  Stream row;
  row.id = record.streamId;
  row.context = static_cast<int32_t>(record.contextId);
  row.priority = static_cast<int32_t>(record.priority);
  row.is_default = flag == CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL;
  row.is_non_blocking = flag == CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING;
  streams_.push_back(row);
}

// Context records have the device and the null stream; names are in NAME
// records.
void CuptiDecoder::LinkStreams() {
  for (const auto& known : null_stream_of_context_) {
    Stream null_stream;
    null_stream.id = known.second;
    null_stream.context = static_cast<int32_t>(known.first);
    null_stream.is_default = true;
    const bool there =
        std::any_of(streams_.begin(), streams_.end(), [&](const Stream& row) {
          return row.context == null_stream.context && row.id == null_stream.id;
        });
    if (!there) streams_.push_back(null_stream);
  }
  std::sort(streams_.begin(), streams_.end(),
            [](const Stream& a, const Stream& b) {
              return std::pair(a.context, a.id) < std::pair(b.context, b.id);
            });
  const Stream* last = nullptr;
  for (Stream& row : streams_) {
    if (last != nullptr && last->context == row.context && last->id == row.id) {
      continue;  // a dump repeats existing streams
    }
    if (const auto device =
            device_of_context_.find(static_cast<uint32_t>(row.context));
        device != device_of_context_.end()) {
      row.device = device->second;
    }
    if (const auto name = stream_names_.find(static_cast<uint32_t>(row.id));
        name != stream_names_.end()) {
      row.name = name->second;
    }
    builder_.Add(row);
    ++result_.rows;
    last = &row;
  }
}

void CuptiDecoder::AddMemory(const RecordBytes& bytes) {
  using Record = CUpti_ActivityMemory4;
  // Records of CUDA 12.0 end before the pool's use.
  if (!Has(bytes, offsetof(Record, memoryPoolConfig))) return;
  const auto record = bytes.As<Record>();
  const uint32_t operation = NumberOf(record.memoryOperationType);
  const bool release =
      operation == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  if (!release &&
      operation != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION) {
    ++result_.unknown_kinds;
    return;
  }
  if (record.timestamp == 0) {
    ++result_.no_times;
    return;
  }
  DeviceMemory row;
  row.time_ns = ToNs(record.timestamp);
  row.correlation = record.correlationId;
  row.name = builder_.Intern(release ? "release" : "alloc");
  row.kind = MemoryKindOf(NumberOf(record.memoryKind));
  row.is_async = record.isAsync != 0;
  row.device = static_cast<int32_t>(record.deviceId);
  if (row.is_async) row.stream = record.streamId;
  row.address = record.address;
  const auto size =
      static_cast<int64_t>(std::min<uint64_t>(record.bytes, INT64_MAX));
  row.bytes = release ? -size : size;
  // An imported pool has its owner's process id in the place of its size.
  if (NumberOf(record.memoryPoolConfig.memoryPoolType) ==
      CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL) {
    row.pool_bytes = static_cast<int64_t>(record.memoryPoolConfig.pool.size);
    if (bytes.size() >= offsetof(Record, source)) {
      row.pool_used_bytes =
          static_cast<int64_t>(record.memoryPoolConfig.utilizedSize);
    }
  }
  ++result_.rows;
  builder_.Add(row);
}

void CuptiDecoder::AddPool(const RecordBytes& bytes) {
  using Record = CUpti_ActivityMemoryPool3;
  if (!Has(bytes, offsetof(Record, utilizedSize))) return;
  const auto record = bytes.As<Record>();
  if (record.timestamp == 0) {
    ++result_.no_times;
    return;
  }
  DeviceMemory row;
  row.time_ns = ToNs(record.timestamp);
  row.correlation = record.correlationId;
  row.name =
      builder_.Intern(PoolOperation(NumberOf(record.memoryPoolOperationType)));
  row.kind = MemoryKind::kDevice;
  row.is_async = true;
  row.device = static_cast<int32_t>(record.deviceId);
  row.address = record.address;
  row.pool_bytes = static_cast<int64_t>(record.size);
  if (bytes.size() >= offsetof(Record, isManagedPool)) {
    row.pool_used_bytes = static_cast<int64_t>(record.utilizedSize);
  }
  ++result_.rows;
  builder_.Add(row);
}

void CuptiDecoder::AddEnvironment(const RecordBytes& bytes) {
  using Record = CUpti_ActivityEnvironment;
  if (!Has(bytes, sizeof(Record))) return;
  const auto record = bytes.As<Record>();
  if (record.timestamp == 0) {
    ++result_.no_times;
    return;
  }
  // CUPTI samples every device of the machine.
  if (!records_.devices.empty() && record.deviceId >= devices_.size()) return;
  DeviceSample row;
  row.time_ns = ToNs(record.timestamp);
  row.device = static_cast<int32_t>(record.deviceId);
  const auto& data = record.data;
  switch (NumberOf(record.environmentKind)) {
    case CUPTI_ACTIVITY_ENVIRONMENT_SPEED:
      row.sm_clock_mhz = static_cast<int32_t>(data.speed.smClock);
      row.memory_clock_mhz = static_cast<int32_t>(data.speed.memoryClock);
      row.throttle_reasons = NumberOf(data.speed.clocksThrottleReasons);
      break;
    case CUPTI_ACTIVITY_ENVIRONMENT_TEMPERATURE:
      row.temperature_c = static_cast<int32_t>(data.temperature.gpuTemperature);
      break;
    case CUPTI_ACTIVITY_ENVIRONMENT_POWER:
      row.power_mw = static_cast<int32_t>(data.power.power);
      row.power_limit_mw = static_cast<int32_t>(data.power.powerLimit);
      break;
    case CUPTI_ACTIVITY_ENVIRONMENT_COOLING:
      row.fan_percent = static_cast<int32_t>(data.cooling.fanSpeed);
      break;
    default:
      ++result_.unknown_kinds;
      return;
  }
  ++result_.rows;
  builder_.Add(row);
}

void CuptiDecoder::AddName(const RecordBytes& bytes) {
  using Record = CUpti_ActivityName;
  if (!Has(bytes, sizeof(Record))) return;
  const auto record = bytes.As<Record>();
  const std::string_view name = TextOf(record.name);
  if (name.empty()) return;
  switch (NumberOf(record.objectKind)) {
    case CUPTI_ACTIVITY_OBJECT_THREAD: {
      const RowId row =
          ThreadOf(record.objectId.pt.processId, record.objectId.pt.threadId);
      if (builder_.thread(row).name == 0) {
        builder_.thread(row).name = builder_.Intern(name);
      }
      return;
    }
    case CUPTI_ACTIVITY_OBJECT_STREAM:
      stream_names_[record.objectId.dcs.streamId] = builder_.Intern(name);
      return;
    default:
      return;  // a Trace has no names of contexts and devices
  }
}

}  // namespace stepscope
