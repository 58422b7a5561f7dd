#include "chrome/writer/chrome_header_writer.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "json/json_writer.h"
#include "rows/file_threads.h"
#include "rows/own_header_writer.h"
#include "rows/run_start.h"

namespace stepscope {
namespace {

constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;

int64_t FloorToDay(int64_t time_ns) {
  const int64_t days = time_ns / kDayNs - (time_ns % kDayNs < 0 ? 1 : 0);
  return days * kDayNs;
}

// Returns the number of days from 1970 to the start of the run, or -1. A run's
// id is "<name>_2026_01_31_14_05_09". All ranks share it, so all of them get
// the same day.
int64_t DayOfRun(std::string_view run_id) {
  run_id = StartOfRun(run_id);
  int numbers[3] = {};
  for (int& number : numbers) {
    const auto [end, error] =
        std::from_chars(run_id.data(), run_id.data() + run_id.size(), number);
    if (error != std::errc()) return -1;
    run_id.remove_prefix(static_cast<size_t>(end - run_id.data()));
    if (!run_id.empty()) run_id.remove_prefix(1);
  }
  const auto [year, month, day] = numbers;
  if (year < 1970 || year > 9999 || month < 1 || month > 12 || day < 1 ||
      day > 31) {
    return -1;
  }
  // Days of the proleptic Gregorian calendar, years beginning in March.
  const int64_t y = month <= 2 ? year - 1 : year;
  const int64_t days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
  return y * 365 + y / 4 - y / 100 + y / 400 + days_before_month + day - 1 -
         719468;
}

// Writes Kineto's keys, each on a line of its own with a blank after the colon:
// HTA finds the rank by searching the text for this form.
class HeaderWriter {
 public:
  HeaderWriter(const Trace& trace, std::string& out)
      : trace_(trace), out_(out), json_(&out) {}

  void Devices();
  void Distributed();
  void Versions();

  template <typename Number>
  void Line(const char* key, Number value) {
    out_ += "  \"";
    out_ += key;
    out_ += "\": ";
    AppendInt(value, out_);
    out_ += ",\n";
  }

 private:
  void ProcessGroups();
  const Trace& trace_;
  std::string& out_;
  JsonWriter json_;
};

// One entry per ordinal up to the last device with any activity, because the
// plugin uses the device of an event as an index.
void HeaderWriter::Devices() {
  constexpr int32_t kMostDevices = 64;
  int32_t last = -1;
  const auto see = [&](int32_t device) {
    if (device < kMostDevices) last = std::max(last, device);
  };
  for (const Device& device : trace_.run().devices) see(device.ordinal);
  for (const Kernel& kernel : trace_.kernels()) see(kernel.device);
  for (const Copy& copy : trace_.copies()) see(copy.device);
  for (const Memset& set : trace_.memsets()) see(set.device);
  for (const Allocation& event : trace_.allocations()) see(event.device);
  out_ += "  \"deviceProperties\": [";
  for (int32_t ordinal = 0; ordinal <= last; ++ordinal) {
    Device device;
    for (const Device& known : trace_.run().devices) {
      if (known.ordinal == ordinal) device = known;
    }
    out_ += ordinal == 0 ? "\n    " : ",\n    ";
    json_.OpenObject();
    json_.Field("id", int64_t{ordinal});
    json_.Field("name", device.name);
    const auto field = [&](const char* key, int64_t value) {
      if (value >= 0) json_.Field(key, value);
    };
    json_.Field("totalGlobalMem", std::max<int64_t>(device.memory_bytes, 0));
    json_.Field("computeMajor", int64_t{std::max(device.compute_major, 0)});
    json_.Field("computeMinor", int64_t{std::max(device.compute_minor, 0)});
    field("maxThreadsPerMultiprocessor", device.max_threads_per_sm);
    field("regsPerMultiprocessor", device.regs_per_sm);
    field("warpSize", device.warp_size);
    field("sharedMemPerMultiprocessor", device.shared_memory_per_sm_bytes);
    field("numSms", device.sm_count);
    json_.CloseObject();
  }
  out_ += last < 0 ? "],\n" : "\n  ],\n";
}

// True for "[0, 1]" and the like, which is valid JSON as it is.
bool IsListOfNumbers(std::string_view text) {
  return text.size() > 2 && text.front() == '[' && text.back() == ']' &&
         text.find_first_not_of("0123456789, ", 1) == text.size() - 1 &&
         text.find(",,") == std::string_view::npos &&
         text[text.size() - 2] >= '0' && text[1] >= '0';
}

// Writes the process groups that communicated.
void HeaderWriter::ProcessGroups() {
  std::map<std::string_view, const Communication*> groups;
  for (const Communication& call : trace_.communications()) {
    if (call.group_name != 0)
      groups.try_emplace(trace_.name(call.group_name), &call);
  }
  if (groups.empty()) return;
  json_.Field("pg_count", static_cast<int64_t>(groups.size()));
  json_.Key("pg_config");
  json_.OpenList();
  for (const auto& [name, call] : groups) {
    json_.Item();
    json_.OpenObject();
    json_.Field("pg_name", name);
    json_.Field("pg_desc", trace_.name(call->group_description));
    json_.Field("backend_config", trace_.run().backend);
    if (call->group_size >= 0)
      json_.Field("pg_size", int64_t{call->group_size});
    const std::string_view ranks = trace_.name(call->group_ranks);
    if (IsListOfNumbers(ranks)) {
      json_.Key("ranks");
      out_ += ranks;
    }
    json_.CloseObject();
  }
  json_.CloseList();
}

// HTA takes the rank from "rank"; the plugin takes it from the file's name.
void HeaderWriter::Distributed() {
  const RunInfo& run = trace_.run();
  if (run.rank < 0) return;
  out_ += "  \"distributedInfo\": ";
  json_.OpenObject();
  if (!run.backend.empty()) json_.Field("backend", run.backend);
  json_.Field("rank", int64_t{run.rank});
  if (run.world_size >= 0) json_.Field("world_size", int64_t{run.world_size});
  ProcessGroups();
  json_.CloseObject();
  out_ += ",\n";
}

void HeaderWriter::Versions() {
  const RunInfo& run = trace_.run();
  const auto line = [&](const char* key, const std::string& text) {
    if (text.empty()) return;
    out_ += "  \"";
    out_ += key;
    out_ += "\": ";
    AppendQuoted(text, out_);
    out_ += ",\n";
  };
  line("cuda_runtime_version", run.cuda_version);
  line("trace_id", run.run_id);
}

}  // namespace

// HTA compares ts across ranks without looking at the base, so ranks must share
// one. Microseconds since the epoch would lose the nanoseconds in a double.
int64_t ChromeBaseTime(const Trace& trace, const TimeSpan& span) {
  const int64_t own_day_ns = FloorToDay(span.begin_ns);
  // The run's start is local time, up to 14 hours ahead of UTC, so the base is
  // a day earlier. A base more than a week before the events would lose
  // precision and is not used.
  const int64_t run_day = DayOfRun(trace.run().run_id);
  if (run_day < 1) return own_day_ns;
  const int64_t run_day_ns = (run_day - 1) * kDayNs;
  const bool near =
      run_day_ns <= own_day_ns && own_day_ns - run_day_ns <= 8 * kDayNs;
  return near ? run_day_ns : own_day_ns;
}

void WriteChromeHeader(const Trace& trace, ChromeFlavour flavour,
                       int64_t base_ns, std::string& out) {
  HeaderWriter header(trace, out);
  out += "{\n";
  header.Line("schemaVersion", 1);
  header.Devices();
  header.Distributed();
  // These are for people; no viewer reads them.
  header.Line("record_shapes", trace.run().record_shapes);
  header.Line("profile_memory", trace.run().profile_memory);
  header.Line("with_stack", trace.run().with_stack);
  header.Line("with_flops", 0);
  header.Line("with_modules",
              std::any_of(trace.ranges().begin(), trace.ranges().end(),
                          [](const Range& range) {
                            return range.kind == RangeKind::kModule;
                          }));
  header.Versions();
  out += "  \"displayTimeUnit\": \"ms\",\n";
  header.Line("baseTimeNanoseconds", base_ns);
  // Our object comes before the events, so that our reader knows the threads
  // and kinds before the first row.
  WriteOwnHeader(trace, FlavourText(flavour), FileThreadsOf(trace), out);
  out += "  \"traceEvents\": [\n";
}

}  // namespace stepscope
