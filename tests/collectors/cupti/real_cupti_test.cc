// Checks the layouts that the decoder reads and the sizes that the fakes use
// against NVIDIA's own headers and libraries: those of the wheel of this build,
// and those unpacked under $STEPSCOPE_CUPTI_WHEELS. To add more:
//
//   pip download --no-deps nvidia-cuda-cupti==13.5.25 -d /tmp/cupti
//   unzip /tmp/cupti/nvidia_cuda_cupti-13.5.25-*.whl -d /tmp/cupti/13.5.25
//   STEPSCOPE_CUPTI_WHEELS=/tmp/cupti build/.../cupti_test
//
// libcupti up to CUDA 13.1 steps over records without a GPU. Later libraries
// need a driver (13.2 crashes without one), so only their headers are checked.
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
#include "counters/counter_choice.h"
#include "fakes/cupti_records.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::real_cupti_test {
namespace {

namespace fs = std::filesystem;

// Returns folders with the "include" and "lib" of one CUPTI each; ours is
// first.
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

// Returns an empty path if there is no library.
fs::path LibraryOf(const fs::path& toolkit) {
  for (const char* name : {"lib/libcupti.so.13", "lib/libcupti.so.12"}) {
    if (fs::exists(toolkit / name)) return toolkit / name;
  }
  return {};
}

struct Layout {
  CUpti_ActivityKind kind;
  const char* base;  // the type is CUpti_Activity<base><number>
  std::vector<const char*> fields;
};

// The fields that the decoder reads.
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

// Fields of callback data, and callback numbers. They have no versions, so they
// must be equal in all toolkits.
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

// Structures passed and read when sampling hardware counters (counters/), in
// the headers of CUDA 12.6 and later. A structure may grow at its end.
const std::map<std::string, std::vector<const char*>>& CounterStructures() {
  static const std::map<std::string, std::vector<const char*>> kStructures = {
      {"Profiler_Initialize_Params", {"pPriv"}},
      {"Profiler_DeviceSupported_Params", {"cuDevice", "isSupported", "api"}},
      {"Device_GetChipName_Params", {"deviceIndex", "pChipName"}},
      {"Profiler_Host_Initialize_Params",
       {"profilerType", "pChipName", "pCounterAvailabilityImage",
        "pHostObject"}},
      {"Profiler_Host_Deinitialize_Params", {"pHostObject"}},
      {"Profiler_Host_ConfigAddMetrics_Params",
       {"pHostObject", "ppMetricNames", "numMetrics"}},
      {"Profiler_Host_GetConfigImageSize_Params",
       {"pHostObject", "configImageSize"}},
      {"Profiler_Host_GetConfigImage_Params",
       {"pHostObject", "configImageSize", "pConfigImage"}},
      {"Profiler_Host_GetNumOfPasses_Params",
       {"configImageSize", "pConfigImage", "numOfPasses"}},
      {"Profiler_Host_EvaluateToGpuValues_Params",
       {"pHostObject", "pCounterDataImage", "counterDataImageSize",
        "rangeIndex", "ppMetricNames", "numMetrics", "pMetricValues"}},
      {"PmSampling_GetCounterAvailability_Params",
       {"deviceIndex", "counterAvailabilityImageSize",
        "pCounterAvailabilityImage"}},
      {"PmSampling_Enable_Params", {"deviceIndex", "pPmSamplingObject"}},
      {"PmSampling_Disable_Params", {"pPmSamplingObject"}},
      {"PmSampling_SetConfig_Params",
       {"pPmSamplingObject", "configSize", "pConfig", "hardwareBufferSize",
        "samplingInterval", "triggerMode", "hwBufferAppendMode"}},
      {"PmSampling_GetCounterDataSize_Params",
       {"pPmSamplingObject", "pMetricNames", "numMetrics", "maxSamples",
        "counterDataSize"}},
      {"PmSampling_CounterDataImage_Initialize_Params",
       {"pPmSamplingObject", "counterDataSize", "pCounterData"}},
      {"PmSampling_Start_Params", {"pPmSamplingObject"}},
      {"PmSampling_Stop_Params", {"pPmSamplingObject"}},
      {"PmSampling_DecodeData_Params",
       {"pPmSamplingObject", "pCounterDataImage", "counterDataImageSize",
        "decodeStopReason", "overflow"}},
      {"PmSampling_GetCounterDataInfo_Params",
       {"pCounterDataImage", "counterDataImageSize", "numCompletedSamples"}},
      {"PmSampling_CounterData_GetSampleInfo_Params",
       {"pPmSamplingObject", "pCounterDataImage", "counterDataImageSize",
        "sampleIndex", "startTimestamp", "endTimestamp"}},
  };
  return kStructures;
}
constexpr const char* kCounterNumbers[] = {
    "CUPTI_PROFILER_TYPE_PM_SAMPLING",
    "CUPTI_PROFILER_PM_SAMPLING",
    "CUPTI_PROFILER_CONFIGURATION_SUPPORTED",
    "CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL",
    "CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL",
    "CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL",
    "CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS",
};

// Compiles `code` with a toolkit's headers and returns what it prints.
std::string OutputOf(const fs::path& toolkit, const std::string& code,
                     const std::string& argument, const TempFolder& folder);
// The same for code that prints names and numbers.
std::map<std::string, size_t> NumbersFrom(const fs::path& toolkit,
                                          const std::string& code,
                                          const TempFolder& folder);

// Like OffsetsIn() for the structures of hardware counters; empty before 12.6.
std::map<std::string, size_t> CounterOffsetsIn(const fs::path& toolkit,
                                               const TempFolder& folder) {
  if (!fs::exists(toolkit / "include/cupti_pmsampling.h")) return {};
  std::string code =
      "#include <cstddef>\n#include <cstdio>\n#include <cupti_version.h>\n"
      "#include <cupti_pmsampling.h>\n#include <cupti_profiler_host.h>\n"
      "#include <cupti_profiler_target.h>\n#include <cupti_target.h>\n";
  std::string calls;
  for (const auto& [name, fields] : CounterStructures()) {
    code += "template <class S> void " + name + "() {\n";
    for (const std::string field : fields) {
      code += "  if constexpr (requires(S s) { s." + field +
              "; }) std::printf(\"" + name + "." + field +
              " %zu\\n\", offsetof(S, " + field + "));\n";
    }
    code += "}\n";
    calls += name + "<CUpti_" + name + ">(); std::printf(\"" + name +
             " %zu\\n\", size_t(CUpti_" + name + "_STRUCT_SIZE));\n";
  }
  for (const std::string number : kCounterNumbers) {
    calls +=
        "std::printf(\"" + number + " %zu\\n\", size_t(" + number + "));\n";
  }
  return NumbersFrom(toolkit,
                     code +
                         "int main() { std::printf(\"version %d\\n\", "
                         "CUPTI_API_VERSION);\n" +
                         calls + "}\n",
                     folder);
}

// Returns the newest structure of that name in a header.
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

// Returns what a compiler sees in this toolkit's headers: each field's offset
// by its name, each kind's size, and "version".
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
  return NumbersFrom(toolkit, code, folder);
}

std::string OutputOf(const fs::path& toolkit, const std::string& code,
                     const std::string& argument, const TempFolder& folder) {
  const std::string source = folder.Write("layout.cc", code);
  const std::string program = folder.At("layout");
  std::string command = STEPSCOPE_COMPILER " -std=c++20 -w -isystem '" +
                        (toolkit / "include").string() + "'";
  std::stringstream others(STEPSCOPE_CUPTI_HEADER_FOLDERS);
  for (std::string other; std::getline(others, other, ':');) {
    command += " -isystem '" + other + "'";
  }
  const Outcome run =
      RunShell(command + " -o '" + program + "' '" + source + "' -ldl && '" +
                   program + "' '" + argument + "'",
               folder);
  // libcupti of CUDA 13.2 crashes without a driver.
  constexpr int kCrashed = 128;
  EXPECT_TRUE(run.status == 0 || (!argument.empty() && run.status >= kCrashed))
      << toolkit << ": " << run.err.substr(0, 2000);
  return run.out;
}

std::map<std::string, size_t> NumbersFrom(const fs::path& toolkit,
                                          const std::string& code,
                                          const TempFolder& folder) {
  std::map<std::string, size_t> numbers;
  std::stringstream lines(OutputOf(toolkit, code, "", folder));
  std::string name;
  for (size_t number = 0; lines >> name >> number;) numbers[name] = number;
  return numbers;
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
        // In older versions, the record may end before this field.
        if (!theirs.contains(name)) continue;
        EXPECT_EQ(theirs.at(name), ours.at(name)) << name;
      }
    }
  }
}

TEST(RealCuptiLayoutTest, CountersAreAskedForAsEveryVersionExpects) {
  TempFolder folder;
  const std::vector<fs::path> toolkits = Toolkits();
  const auto ours = CounterOffsetsIn(toolkits.front(), folder);
  ASSERT_GT(ours.size(), 80u);
  for (const fs::path& toolkit : toolkits) {
    const auto theirs = CounterOffsetsIn(toolkit, folder);
    if (theirs.empty()) continue;
    const size_t version = theirs.at("version");
    SCOPED_TRACE(toolkit.string() + ", version " + std::to_string(version));
    for (const auto& [name, number] : ours) {
      if (name == "version") continue;
      if (!theirs.contains(name)) {
        EXPECT_EQ(name, "PmSampling_SetConfig_Params.hwBufferAppendMode");
        EXPECT_LT(version, 26u);
      } else if (CounterStructures().contains(name)) {
        // A library accepts the structure sizes of its own and of earlier
        // versions. The only structure that was shorter is passed with its old
        // size.
        const bool was_short =
            name == "PmSampling_SetConfig_Params" && version < 26;
        EXPECT_GE(theirs.at(name),
                  was_short
                      ? ours.at("PmSampling_SetConfig_Params.triggerMode") + 4
                      : number)
            << name;
      } else {
        EXPECT_EQ(theirs.at(name), number) << name;
      }
    }
  }
}

// Returns a buffer with records of all kinds that the fakes know, in random
// order.
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

// Runs in its own process: libcupti may crash, and a process can load only one.
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

// Calls `run` in its own process for each library on this machine. Returns the
// number of libraries that answered.
int ForEachLibrary(int (*run)(const std::string&)) {
  int compared = 0;
  for (const fs::path& toolkit : Toolkits()) {
    const fs::path library = LibraryOf(toolkit);
    if (library.empty()) continue;
    const pid_t child = fork();
    EXPECT_GE(child, 0);
    if (child == 0) _exit(run(library));
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == kNoAnswer) {
      std::printf("%s answers nothing without a driver\n", library.c_str());
      continue;
    }
    EXPECT_EQ(WEXITSTATUS(status), kSame) << library;
    ++compared;
  }
  return compared;
}

// A program that asks a library, in the same way as CounterChoice, which
// counter names each chip knows and can count together with the previous ones
// in one pass. For each chip and counter, it prints the index of the name, or
// -1. It is a separate program because NVIDIA's library cannot be loaded with a
// sanitizer.
constexpr char kAskForChips[] = R"(
#include <dlfcn.h>
#include <cstdio>
#include <vector>
#include <cupti_version.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
template <class Params> Params Sized(size_t bytes) {
  Params params = {};
  params.structSize = bytes;
  return params;
}
#define GET(name) const auto name = (decltype(&::name))dlsym(library, #name); \
  if (name == nullptr) return 0
#define SIZED(type) Sized<CUpti_Profiler_Host_##type>( \
    CUpti_Profiler_Host_##type##_STRUCT_SIZE)
int main(int, char** words) {
  void* library = dlopen(words[1], RTLD_NOW);
  if (library == nullptr) return 0;
  GET(cuptiGetVersion);
  uint32_t version = 0;
  if (cuptiGetVersion(&version) != CUPTI_SUCCESS || version == 0) return 0;
  GET(cuptiProfilerHostInitialize);
  GET(cuptiProfilerHostDeinitialize);
  GET(cuptiProfilerHostConfigAddMetrics);
  GET(cuptiProfilerHostGetConfigImageSize);
  GET(cuptiProfilerHostGetConfigImage);
  GET(cuptiProfilerHostGetNumOfPasses);
  const auto passes = [&](const char* chip, std::vector<const char*> names) {
    auto host = SIZED(Initialize_Params);
    host.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
    host.pChipName = chip;
    if (cuptiProfilerHostInitialize(&host) != CUPTI_SUCCESS) return 0;
    int count = 0;
    auto add = SIZED(ConfigAddMetrics_Params);
    add.pHostObject = host.pHostObject;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    auto size = SIZED(GetConfigImageSize_Params);
    size.pHostObject = host.pHostObject;
    if (cuptiProfilerHostConfigAddMetrics(&add) == CUPTI_SUCCESS &&
        cuptiProfilerHostGetConfigImageSize(&size) == CUPTI_SUCCESS) {
      std::vector<uint8_t> bytes(size.configImageSize);
      auto image = SIZED(GetConfigImage_Params);
      image.pHostObject = host.pHostObject;
      image.configImageSize = bytes.size();
      image.pConfigImage = bytes.data();
      auto all = SIZED(GetNumOfPasses_Params);
      all.configImageSize = bytes.size();
      all.pConfigImage = bytes.data();
      if (cuptiProfilerHostGetConfigImage(&image) == CUPTI_SUCCESS &&
          cuptiProfilerHostGetNumOfPasses(&all) == CUPTI_SUCCESS) {
        count = (int)all.numOfPasses;
      }
    }
    auto end = SIZED(Deinitialize_Params);
    end.pHostObject = host.pHostObject;
    cuptiProfilerHostDeinitialize(&end);
    return count;
  };
  const std::vector<std::vector<const char*>> wanted = {@NAMES@};
  for (const char* chip : {@CHIPS@}) {
    std::printf("%s", chip);
    std::vector<const char*> chosen;
    for (const auto& names : wanted) {
      int found = -1;
      for (size_t i = 0; i < names.size() && found < 0; ++i) {
        std::vector<const char*> more = chosen;
        more.push_back(names[i]);
        if (passes(chip, more) != 1) continue;
        chosen = more;
        found = (int)i;
      }
      std::printf(" %d", found);
    }
    std::printf("\n");
  }
}
)";

// Returns what the toolkit's library says about the chips; "" if it does not
// answer.
std::string ChipsOf(const fs::path& toolkit, const TempFolder& folder) {
  const std::string library = LibraryOf(toolkit).string();
  if (library.empty() || !fs::exists(toolkit / "include/cupti_pmsampling.h")) {
    return "";
  }
  std::string code = kAskForChips;
  std::string names;
  for (const auto& counter : CounterNames()) {
    names += "{";
    for (const std::string name : counter) names += "\"" + name + "\",";
    names += "},";
  }
  code.replace(code.find("@NAMES@"), 7, names);
  // A100, A10, H100 and H200, L40, B200, RTX 5090, GB10, V100.
  code.replace(code.find("@CHIPS@"), 7,
               "\"GA100\", \"GA102\", \"GH100\", \"AD102\", \"GB100\", "
               "\"GB202\", \"GB20B\", \"GV100\"");
  return OutputOf(toolkit, code, library, folder);
}

// Without a device, NVIDIA's library knows which counters each chip has and
// which of them it can count at the same time.
TEST(RealCuptiCountersTest, EachChipCountsWhatIsWantedInOnePass) {
  TempFolder folder;
  int answered = 0;
  for (const fs::path& toolkit : Toolkits()) {
    const std::string said = ChipsOf(toolkit, folder);
    if (said.empty()) {
      std::printf("%s does not answer\n", toolkit.c_str());
      continue;
    }
    ++answered;
    // GB10 has no memory of its own, and V100 is too old.
    EXPECT_EQ(said,
              "GA100 0 0 0\nGA102 0 0 0\nGH100 0 0 0\nAD102 0 0 0\n"
              "GB100 0 0 0\nGB202 0 0 0\nGB20B 0 0 -1\nGV100 -1 -1 -1\n")
        << toolkit;
  }
  if (answered == 0) GTEST_SKIP() << "no libcupti that answers";
}

TEST(RealCuptiStepTest, TheFakesStepOverRecordsAsTheLibrariesDo) {
  if (ForEachLibrary(&StepsInChild) == 0) {
    GTEST_SKIP() << "no libcupti that answers without a driver; unpack a wheel "
                    "and name its folder in STEPSCOPE_CUPTI_WHEELS";
  }
}

}  // namespace
}  // namespace stepscope::real_cupti_test
