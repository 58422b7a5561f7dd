// The layouts that the decoder reads and the sizes that the fakes step with,
// against NVIDIA's own headers and libraries: those of the wheel that this was
// built with, and those unpacked under $STEPSCOPE_CUPTI_WHEELS. To get more:
//
//   pip download --no-deps nvidia-cuda-cupti==13.5.25 -d /tmp/cupti
//   unzip /tmp/cupti/nvidia_cuda_cupti-13.5.25-*.whl -d /tmp/cupti/13.5.25
//   STEPSCOPE_CUPTI_WHEELS=/tmp/cupti build/.../cupti_test
//
// libcupti up to CUDA 13.1 steps over records without a GPU. Later ones answer
// nothing without a driver (13.2 crashes), so of these the headers alone count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "api/cupti_api.h"
#include "fakes/cupti_records.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// Folders with "include" and "lib" of one CUPTI each; ours first.
std::vector<fs::path> Toolkits() {
  std::vector<fs::path> found = {
      fs::path(STEPSCOPE_CUPTI_LIBRARY_FOLDER).parent_path()};
  const char* wheels = std::getenv("STEPSCOPE_CUPTI_WHEELS");
  std::error_code error;
  if (wheels == nullptr) return found;
  for (const auto& wheel : fs::directory_iterator(wheels, error)) {
    for (const auto& toolkit :
         fs::directory_iterator(wheel.path() / "nvidia", error)) {
      if (fs::exists(toolkit.path() / "include/cupti_activity.h")) {
        found.push_back(toolkit.path());
      }
    }
  }
  std::sort(found.begin() + 1, found.end());
  return found;
}

struct Layout {
  CUpti_ActivityKind kind;
  const char* base;  // CUpti_Activity<base><number>
  std::vector<const char*> fields;
};

// What the decoder reads.
const std::vector<Layout>& Layouts() {
  static const std::vector<Layout> kLayouts = {
      {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
       "Kernel",
       {"start",
        "end",
        "correlationId",
        "deviceId",
        "contextId",
        "streamId",
        "graphId",
        "graphNodeId",
        "name",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "sharedMemoryExecuted",
        "queued",
        "submitted"}},
      {CUPTI_ACTIVITY_KIND_MEMCPY,
       "Memcpy",
       {"copyKind", "srcKind", "dstKind", "flags", "bytes", "start", "end",
        "correlationId", "deviceId", "contextId", "streamId", "graphId"}},
      {CUPTI_ACTIVITY_KIND_MEMCPY2,
       "MemcpyPtoP",
       {"copyKind", "srcKind", "dstKind", "flags", "bytes", "start", "end",
        "correlationId", "deviceId", "contextId", "streamId", "graphId"}},
      {CUPTI_ACTIVITY_KIND_MEMSET,
       "Memset",
       {"bytes", "start", "end", "correlationId", "deviceId", "contextId",
        "streamId", "graphId"}},
      {CUPTI_ACTIVITY_KIND_RUNTIME,
       "API",
       {"cbid", "start", "end", "processId", "threadId", "correlationId",
        "returnValue"}},
      {CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
       "GraphTrace",
       {"start", "end", "correlationId", "deviceId", "contextId", "streamId",
        "graphId"}},
      {CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
       "Synchronization",
       {"type", "start", "end", "correlationId", "contextId", "streamId",
        "cudaEventId", "cudaEventSyncId", "returnValue"}},
      {CUPTI_ACTIVITY_KIND_CUDA_EVENT,
       "CudaEvent",
       {"correlationId", "contextId", "streamId", "eventId",
        "cudaEventSyncId"}},
      {CUPTI_ACTIVITY_KIND_OVERHEAD,
       "Overhead",
       {"overheadKind", "objectKind", "objectId", "start", "end"}},
      {CUPTI_ACTIVITY_KIND_DEVICE,
       "Device",
       {"id", "name", "uuid", "isCudaVisible", "isMigEnabled", "migUuid",
        "globalMemorySize", "globalMemoryBandwidth", "coreClockRate",
        "computeCapabilityMajor", "computeCapabilityMinor",
        "numMultiprocessors", "numThreadsPerWarp", "maxWarpsPerMultiprocessor",
        "maxBlocksPerMultiprocessor", "maxRegistersPerMultiprocessor",
        "maxRegistersPerBlock", "maxSharedMemoryPerMultiprocessor"}},
      {CUPTI_ACTIVITY_KIND_CONTEXT,
       "Context",
       {"contextId", "deviceId", "nullStreamId"}},
      {CUPTI_ACTIVITY_KIND_STREAM,
       "Stream",
       {"contextId", "streamId", "priority", "flag"}},
      {CUPTI_ACTIVITY_KIND_MEMORY2,
       "Memory",
       {"memoryOperationType", "memoryKind", "correlationId", "address",
        "bytes", "timestamp", "deviceId", "isAsync", "streamId",
        "memoryPoolConfig.memoryPoolType", "memoryPoolConfig.pool.size",
        "memoryPoolConfig.utilizedSize"}},
      {CUPTI_ACTIVITY_KIND_MEMORY_POOL,
       "MemoryPool",
       {"memoryPoolOperationType", "correlationId", "deviceId", "address",
        "size", "timestamp", "utilizedSize"}},
      {CUPTI_ACTIVITY_KIND_ENVIRONMENT,
       "Environment",
       {"deviceId", "timestamp", "environmentKind", "data.speed.smClock",
        "data.speed.clocksThrottleReasons", "data.power.powerLimit"}},
      {CUPTI_ACTIVITY_KIND_NAME, "Name", {"objectKind", "objectId", "name"}},
  };
  return kLayouts;
}

// What callbacks are told, and their numbers: they have no versions, so they
// must be alike in all.
constexpr const char* kCallbackFields[] = {
    "CallbackData.callbackSite",
    "CallbackData.functionParams",
    "CallbackData.functionReturnValue",
    "ResourceData.resourceDescriptor",
    "GraphData.node",
    "GraphData.originalNode",
    "GraphData.nodeType",
};
constexpr const char* kCallbackIds[] = {
    "CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED",
    "CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED",
    "CUPTI_CB_DOMAIN_RUNTIME_API",
    "CUPTI_CB_DOMAIN_DRIVER_API",
    "CUPTI_CB_DOMAIN_RESOURCE",
    "CU_GRAPH_NODE_TYPE_KERNEL",
};

// The newest structure of that name in a header.
std::string NewestIn(const std::string& header, const std::string& base) {
  const std::regex name("\\} CUpti_Activity" + base + "(\\d*);");
  int newest = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), name), end;
       it != end; ++it) {
    const std::string number = (*it)[1];
    newest = std::max(newest, number.empty() ? 1 : std::stoi(number));
  }
  return "CUpti_Activity" + base +
         (newest == 1 ? std::string() : std::to_string(newest));
}

// The offset of each field by its name, the sizes by their kind, and "version",
// as a compiler sees them in this toolkit's headers.
std::map<std::string, size_t> OffsetsIn(const fs::path& toolkit,
                                        const TempFolder& folder) {
  std::ifstream file(toolkit / "include/cupti_activity.h");
  std::stringstream header;
  header << file.rdbuf();
  std::string code =
      "#include <cstddef>\n#include <cstdio>\n#include "
      "<cupti_activity.h>\n#include <cupti_callbacks.h>\n"
      "#include <cupti_version.h>\n";
  std::string calls;
  for (const std::string field : kCallbackFields) {
    calls += "std::printf(\"" + field + " %zu\\n\", offsetof(CUpti_" +
             std::string(field).replace(field.find('.'), 1, ", ") + "));\n";
  }
  for (const std::string id : kCallbackIds) {
    calls += "std::printf(\"" + id + " %zu\\n\", size_t(" + id + "));\n";
  }
  for (const Layout& layout : Layouts()) {
    const std::string base = layout.base;
    code += "template <class S> void " + base + "() {\n";
    for (const std::string field : layout.fields) {
      code += "  if constexpr (requires(S s) { s." + field +
              "; }) std::printf(\"" + base + "." + field +
              " %zu\\n\", offsetof(S, " + field + "));\n";
    }
    code += "}\n";
    const std::string newest = NewestIn(header.str(), base);
    calls += base + "<" + newest + ">(); std::printf(\"" +
             std::to_string(layout.kind) + " %zu\\n\", sizeof(" + newest +
             "));\n";
  }
  code += "int main() { std::printf(\"version %d\\n\", CUPTI_API_VERSION);\n" +
          calls + "}\n";
  const std::string source = folder.Write("layout.cc", code);
  const std::string program = folder.At("layout");
  std::string command = STEPSCOPE_COMPILER " -std=c++20 -w -isystem '" +
                        (toolkit / "include").string() + "'";
  std::stringstream others(STEPSCOPE_CUPTI_HEADER_FOLDERS);
  for (std::string other; std::getline(others, other, ':');) {
    command += " -isystem '" + other + "'";
  }
  const Outcome run = RunShell(
      command + " -o '" + program + "' '" + source + "' && '" + program + "'",
      folder);
  EXPECT_EQ(run.status, 0) << toolkit << ": " << run.err.substr(0, 2000);
  std::map<std::string, size_t> offsets;
  std::stringstream lines(run.out);
  std::string name;
  for (size_t number = 0; lines >> name >> number;) offsets[name] = number;
  return offsets;
}

TEST(RealCuptiLayoutTest, EveryVersionsFieldsAreWhereTheDecoderReadsThem) {
  TempFolder folder;
  const std::vector<fs::path> toolkits = Toolkits();
  const auto ours = OffsetsIn(toolkits.front(), folder);
  ASSERT_GT(ours.size(), 100u);
  for (const fs::path& toolkit : toolkits) {
    const auto theirs = OffsetsIn(toolkit, folder);
    ASSERT_TRUE(theirs.contains("version")) << toolkit;
    const auto version = static_cast<uint32_t>(theirs.at("version"));
    SCOPED_TRACE(toolkit.string() + ", version " + std::to_string(version));
    EXPECT_LE(version, kNewestKnownCupti);
    for (const char* name : kCallbackFields) {
      EXPECT_EQ(theirs.at(name), ours.at(name)) << name;
    }
    for (const char* name : kCallbackIds) {
      EXPECT_EQ(theirs.at(name), ours.at(name)) << name;
    }
    for (const Layout& layout : Layouts()) {
      EXPECT_EQ(theirs.at(std::to_string(layout.kind)),
                RecordBytesOf(layout.kind, version))
          << layout.base;
      for (const char* field : layout.fields) {
        const std::string name = std::string(layout.base) + "." + field;
        EXPECT_TRUE(ours.contains(name)) << name;
        // An older record may end before the field.
        if (!theirs.contains(name)) continue;
        EXPECT_EQ(theirs.at(name), ours.at(name)) << name;
      }
    }
  }
}

// A buffer of records of all kinds that the fakes know, in any order.
std::vector<uint8_t> AnyRecords(uint32_t version, std::mt19937& random) {
  std::vector<uint8_t> bytes;
  while (bytes.size() < 8000) {
    const uint32_t kind = random() % 64;
    const size_t size = RecordBytesOf(kind, version);
    if (size == 0) continue;
    const size_t at = bytes.size();
    bytes.resize(at + size);
    std::memcpy(bytes.data() + at, &kind, sizeof(kind));
  }
  return bytes;
}

enum : int { kSame = 0, kDiffers = 1, kNoAnswer = 2 };

// In a process of its own: libcupti may crash, and no process bears two.
int StepsInChild(const std::string& library) {
  const auto api = LoadCupti({.path = library});
  if (!api.ok()) return kNoAnswer;
  const uint32_t version = (*api)->version();
  std::mt19937 random(version);
  for (int i = 0; i < 50; ++i) {
    const std::vector<uint8_t> bytes = AnyRecords(version, random);
    CUpti_Activity* real = nullptr;
    CUpti_Activity* fake = nullptr;
    for (;;) {
      const CUptiResult a =
          (*api)->GetNextRecord(bytes.data(), bytes.size(), &real);
      const CUptiResult b =
          StepRecord(bytes.data(), bytes.size(), version, &fake);
      if (a != b || (a == CUPTI_SUCCESS && real != fake)) {
        std::fprintf(stderr, "%s, kind %d: %d at %p, the fake %d at %p\n",
                     library.c_str(),
                     real == nullptr ? -1 : static_cast<int>(real->kind), a,
                     static_cast<void*>(real), b, static_cast<void*>(fake));
        return kDiffers;
      }
      if (a != CUPTI_SUCCESS) break;
    }
  }
  return kSame;
}

TEST(RealCuptiStepTest, TheFakesStepOverRecordsAsTheLibrariesDo) {
  std::vector<std::string> silent;
  int compared = 0;
  for (const fs::path& toolkit : Toolkits()) {
    fs::path library;
    for (const char* name : {"lib/libcupti.so.13", "lib/libcupti.so.12"}) {
      if (fs::exists(toolkit / name)) library = toolkit / name;
    }
    if (library.empty()) continue;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(StepsInChild(library));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == kNoAnswer) {
      silent.push_back(library.string());
      continue;
    }
    EXPECT_EQ(WEXITSTATUS(status), kSame) << library;
    ++compared;
  }
  if (compared == 0) {
    GTEST_SKIP() << "no libcupti that answers without a driver; unpack a wheel "
                    "and name its folder in STEPSCOPE_CUPTI_WHEELS";
  }
  for (const std::string& library : silent) {
    std::printf("%s answers nothing without a driver\n", library.c_str());
  }
}

}  // namespace
}  // namespace stepscope
