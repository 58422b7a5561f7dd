// Writes seeds of fuzz_cupti_decode to the given folder: one per kind of
// record, and one buffer with all kinds, for an old and a new version.
#include <cstdio>
#include <string>
#include <vector>

#include "fakes/cupti_records.h"

namespace {

using namespace stepscope;

std::vector<uint8_t> All(uint32_t version) {
  RecordBuffer buffer;
  const auto add = [&](const auto& record) {
    const size_t bytes =
        RecordBytesOf(static_cast<uint32_t>(record.kind), version);
    buffer.Add(record, std::min(bytes, sizeof(record)));
  };
  add(DeviceRecord(0, nullptr));
  add(Blank<CUpti_ActivityContext3>(CUPTI_ACTIVITY_KIND_CONTEXT));
  add(Blank<CUpti_ActivityStream>(CUPTI_ACTIVITY_KIND_STREAM));
  add(Blank<CUpti_ActivityName>(CUPTI_ACTIVITY_KIND_NAME));
  add(CallRecord(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 5000, 5100, 1));
  add(CallRecord(CUPTI_ACTIVITY_KIND_DRIVER, 307, 5010, 5090, 1));
  add(KernelRecord({.start = 5200, .end = 5900, .correlation = 1}, nullptr));
  add(CopyRecord({.start = 6000, .end = 6100, .correlation = 2},
                 CUPTI_ACTIVITY_MEMCPY_KIND_HTOD,
                 CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE,
                 CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 4096));
  add(PeerCopyRecord({.start = 6100, .end = 6200, .correlation = 3}, 64));
  add(MemsetRecord({.start = 6200, .end = 6300, .correlation = 4}, 64));
  add(EventRecord(8, 7, 5));
  auto wait = SyncRecord(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT,
                         6300, 6400, 6);
  wait.cudaEventId = 8;
  add(wait);
  auto overhead = Blank<CUpti_ActivityOverhead3>(CUPTI_ACTIVITY_KIND_OVERHEAD);
  overhead.start = 6400;
  overhead.end = 6500;
  add(overhead);
  auto memory = Blank<CUpti_ActivityMemory4>(CUPTI_ACTIVITY_KIND_MEMORY2);
  memory.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  memory.timestamp = 6500;
  memory.bytes = 512;
  add(memory);
  auto pool = Blank<CUpti_ActivityMemoryPool3>(CUPTI_ACTIVITY_KIND_MEMORY_POOL);
  pool.timestamp = 6600;
  add(pool);
  auto sample =
      Blank<CUpti_ActivityEnvironment>(CUPTI_ACTIVITY_KIND_ENVIRONMENT);
  sample.timestamp = 6700;
  sample.environmentKind = CUPTI_ACTIVITY_ENVIRONMENT_POWER;
  add(sample);
  auto graph =
      Blank<CUpti_ActivityGraphTrace2>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
  graph.start = 6700;
  graph.end = 6800;
  add(graph);
  return buffer.bytes();
}

bool Write(const std::string& path, uint8_t version,
           const std::vector<uint8_t>& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool ok =
      std::fputc(version, file) != EOF &&
      std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && ok;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_cupti_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = std::string(argv[1]) + "/";
  bool ok = true;
  struct {
    const char* name;
    uint8_t choice;
    uint32_t number;
  } const versions[] = {{"cuda12", 1, 22}, {"cuda13", 4, 130001}};
  for (const auto& version : versions) {
    const std::vector<uint8_t> all = All(version.number);
    ok = ok && Write(folder + version.name + "_all", version.choice, all);
    CUpti_Activity* record = nullptr;
    while (StepRecord(all.data(), all.size(), version.number, &record) ==
           CUPTI_SUCCESS) {
      const auto* begin = reinterpret_cast<const uint8_t*>(record);
      uint32_t kind = 0;
      std::memcpy(&kind, begin, sizeof(kind));
      ok = ok && Write(folder + version.name + "_kind" + std::to_string(kind),
                       version.choice,
                       {begin, begin + RecordBytesOf(kind, version.number)});
    }
  }
  if (!ok) std::fprintf(stderr, "cannot write to %s\n", argv[1]);
  return ok ? 0 : 1;
}
