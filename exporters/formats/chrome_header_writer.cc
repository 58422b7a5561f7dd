#include "chrome_header_writer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <vector>

#include "../json_writer.h"
#include "../row_fields.h"

namespace stepscope {
namespace {

constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;

int64_t FloorToDay(int64_t time_ns) {
  const int64_t days = time_ns / kDayNs - (time_ns % kDayNs < 0 ? 1 : 0);
  return days * kDayNs;
}

// The day number since 1970 of a run named YYYY_MM_DD_..., or -1.
int64_t DayOfRun(std::string_view run_id) {
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

// Visitor that writes each field of a row as a member of the open object;
// unknown ones are left out.
template <typename Row>
struct FieldJson {
  const Trace& trace;
  const Row& row;
  JsonWriter& json;
  const Row unknown = {};

  template <typename M>
  void Number(const char* key, M member) {
    using T = std::remove_cvref_t<decltype(row.*member)>;
    const T value = row.*member;
    if (value == unknown.*member) return;
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) return;
      json.Key(key);
      json.Double(value);
    } else if constexpr (std::is_unsigned_v<T>) {
      json.Key(key);
      json.Uint(value);
    } else {
      json.Field(key, static_cast<int64_t>(value));
    }
  }
  template <typename M>
  void Numbers(const char* key, M member) {
    if (row.*member == unknown.*member) return;
    json.Key(key);
    json.OpenList();
    for (int64_t value : row.*member) {
      json.Item();
      json.Int(value);
    }
    json.CloseList();
  }
  template <typename M>
  void Name(const char* key, M member) {
    if (row.*member != 0) json.Field(key, trace.name(row.*member));
  }
  template <typename M>
  void Text(const char* key, M member) {
    if (!(row.*member).empty()) json.Field(key, row.*member);
  }
  template <typename M>
  void Thread(const char* key, M member) {
    if (row.*member != kNone)
      json.Field(key, static_cast<int64_t>(row.*member));
  }
  template <typename M>
  void Choice(const char* key, M member, Texts) {
    json.Field(key, static_cast<int64_t>(row.*member));
  }
  template <typename M>
  void Inputs(const char*, M) {}
  template <typename M>
  void Stack(const char*, M) {}
};

class HeaderWriter {
 public:
  HeaderWriter(const Trace& trace, std::string& out)
      : trace_(trace), out_(out), json_(&out) {}

  void Devices();
  void Distributed();
  void Stepscope(ChromeFlavour flavour, const ChromeRows& rows);

  template <typename Number>
  void Line(const char* key, Number value) {
    out_ += "  \"";
    out_ += key;
    out_ += "\": ";
    AppendInt(value, out_);
    out_ += ",\n";
  }

 private:
  template <typename Row>
  void Object(const Row& row) {
    json_.OpenObject();
    if constexpr (requires { row.time_ns; }) {
      json_.Field("time_ns", row.time_ns);
    } else if constexpr (requires { row.begin_ns; }) {
      json_.Field("begin_ns", row.begin_ns);
      json_.Field("end_ns", row.end_ns);
    }
    VisitFields<Row>(FieldJson<Row>{trace_, row, json_});
  }
  template <typename Row>
  void Rows(const char* key, std::span<const Row> rows) {
    Open(key);
    out_ += "[";
    for (size_t i = 0; i < rows.size(); ++i) {
      out_ += i == 0 ? "\n      " : ",\n      ";
      Object(rows[i]);
      json_.CloseObject();
    }
    out_ += "],\n";
  }
  void Open(const char* key) {
    out_ += "    \"";
    out_ += key;
    out_ += "\": ";
  }

  const Trace& trace_;
  std::string& out_;
  JsonWriter json_;
};

// One entry per ordinal up to the last device that did anything: the plugin
// uses the device of an event as an index.
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

void HeaderWriter::Distributed() {
  const RunInfo& run = trace_.run();
  if (run.rank < 0) return;
  out_ += "  \"distributedInfo\": ";
  json_.OpenObject();
  if (!run.backend.empty()) json_.Field("backend", run.backend);
  json_.Field("rank", int64_t{run.rank});
  if (run.world_size >= 0) json_.Field("world_size", int64_t{run.world_size});
  json_.CloseObject();
  out_ += ",\n";
}

void HeaderWriter::Stepscope(ChromeFlavour flavour, const ChromeRows& rows) {
  out_ += "  \"stepscope\": {\n    \"schema\": 1,\n    \"flavour\": ";
  out_ += flavour == ChromeFlavour::kTb ? "\"tb\"" : "\"kineto\"";
  out_ += ",\n";
  Open("run");
  Object(trace_.run());
  json_.Key("devices");
  json_.OpenList();
  for (const Device& device : trace_.run().devices) {
    json_.Item();
    Object(device);
    json_.CloseObject();
  }
  json_.CloseList();
  json_.CloseObject();
  out_ += ",\n";
  Open("watched");
  json_.OpenList();
  for (int i = 0; i < static_cast<int>(Kind::kCount); ++i) {
    if (!trace_.watched(static_cast<Kind>(i))) continue;
    json_.Item();
    json_.String(KindName(static_cast<Kind>(i)));
  }
  json_.CloseList();
  out_ += ",\n";
  Open("threads");
  json_.OpenList();
  for (RowId row = 0; row < trace_.threads().size(); ++row) {
    const Thread& thread = trace_.threads()[row];
    const auto [file_pid, file_tid] = rows.FileThread(row);
    json_.Item();
    json_.OpenList();
    json_.Item();
    json_.Int(thread.pid);
    json_.Item();
    json_.Int(thread.tid);
    json_.Item();
    json_.Uint(thread.torch_thread);
    json_.Item();
    json_.String(trace_.name(thread.name));
    json_.Item();
    json_.Int(file_pid);
    json_.Item();
    json_.Int(file_tid);
    json_.CloseList();
  }
  json_.CloseList();
  out_ += ",\n";
  Rows("settings", trace_.settings());
  Rows("host_usage", trace_.host_usage());
  Rows("loaders", trace_.loaders());
  Rows("streams", trace_.streams());
  Rows("device_samples", trace_.device_samples());
  Rows("losses", trace_.losses());
  out_.resize(out_.size() - 2);  // the last comma
  out_ += "\n  },\n";
}

}  // namespace

int64_t ChromeBaseTime(const Trace& trace, const TimeSpan& span) {
  const int64_t own_day_ns = FloorToDay(span.begin_ns);
  // A run's name may be local time, up to 14 hours ahead of UTC: begin a day
  // earlier. Further from the events than a week it would cost precision.
  const int64_t run_day = DayOfRun(trace.run().run_id);
  if (run_day < 1) return own_day_ns;
  const int64_t run_day_ns = (run_day - 1) * kDayNs;
  const bool near =
      run_day_ns <= own_day_ns && own_day_ns - run_day_ns <= 8 * kDayNs;
  return near ? run_day_ns : own_day_ns;
}

void WriteChromeHeader(const Trace& trace, ChromeFlavour flavour,
                       int64_t base_ns, const ChromeRows& rows,
                       std::string& out) {
  HeaderWriter header(trace, out);
  out += "{\n";
  header.Line("schemaVersion", 1);
  header.Devices();
  header.Distributed();
  header.Line("record_shapes", trace.run().record_shapes);
  header.Line("profile_memory", trace.run().profile_memory);
  header.Line("with_stack", trace.run().with_stack);
  out += "  \"displayTimeUnit\": \"ms\",\n";
  header.Line("baseTimeNanoseconds", base_ns);
  header.Stepscope(flavour, rows);
  out += "  \"traceEvents\": [\n";
}

}  // namespace stepscope
