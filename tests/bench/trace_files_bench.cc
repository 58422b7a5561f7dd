// Reading and writing trace files: speed, and memory above the Trace. Prints a
// line per row and one JSON object a line; exit 3 if a bound is missed.
//   trace_files_bench [--out FILE] [--scratch DIR] [--events MILLIONS] TRACE...
// TRACE: files of torch.profiler; each is read plain, from the page cache.
#include <malloc.h>
#include <stepscope/export.h>
#include <stepscope/read.h>
#include <stepscope/trace_builder.h>
#include <zlib.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "results.h"

namespace stepscope::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;
constexpr double kMb = 1e6;

template <typename Work>
double Seconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// A field of /proc/self/status in bytes.
double StatusBytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == field && file >> kib) return kib * 1024;
  }
  return 0;
}

// What a Trace holds, and the most that was held meanwhile, above before.
struct Memory {
  double kept_bytes = 0;
  double peak_bytes = 0;
};
template <typename Work>
Memory MemoryOf(Work work) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts here
  const double before = StatusBytes("VmRSS:");
  work();
  Memory memory;
  memory.peak_bytes = StatusBytes("VmHWM:") - before;
  malloc_trim(0);
  memory.kept_bytes = StatusBytes("VmRSS:") - before;
  return memory;
}

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "trace_files_bench: %s\n", what.c_str());
  std::exit(1);
}

Trace ReadOrFail(const std::string& path) {
  absl::StatusOr<Trace> trace = ReadTrace(path);
  if (!trace.ok()) Fail(std::string(trace.status().message()));
  return *std::move(trace);
}

void WriteOrFail(const Trace& trace, Format format, const std::string& path) {
  const absl::Status written = WriteTrace(trace, {}, format, path);
  if (!written.ok()) Fail(std::string(written.message()));
}

// A plain copy of a file that may be gzipped.
std::string Plain(const std::string& path, const std::string& scratch) {
  const std::string plain = scratch + "/plain.json";
  gzFile in = gzopen(path.c_str(), "rb");
  if (in == nullptr) Fail("cannot read " + path);
  std::ofstream out(plain, std::ios::binary);
  std::vector<char> block(1 << 20);
  for (int count = 0;
       (count = gzread(in, block.data(), static_cast<unsigned>(block.size()))) >
       0;) {
    out.write(block.data(), count);
  }
  gzclose(in);
  return plain;
}

// A training run of `events` rows: ops that nest, launches, kernels.
Trace MadeUp(int64_t events) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(100, 100);
  std::vector<NameId> names;
  for (int i = 0; i < 200; ++i)
    names.push_back(builder.Intern("aten::operator_" + std::to_string(i)));
  const NameId launch = builder.Intern("cudaLaunchKernel");
  std::vector<NameId> kernels;
  for (int i = 0; i < 100; ++i) {
    kernels.push_back(builder.Intern(
        "void at::native::vectorized_elementwise_kernel<4, float, " +
        std::to_string(i) + ">(int, float, at::detail::Array<char*, 2>)"));
  }
  constexpr int64_t kStart = 1'763'700'000'000'000'000;
  constexpr int64_t kPerGroup = 5;
  for (int64_t group = 0; group < events / kPerGroup; ++group) {
    const int64_t at = kStart + group * 10'000;
    const auto pick = static_cast<size_t>(group);
    for (int depth = 0; depth < 3; ++depth) {
      Op op;
      op.begin_ns = at + depth * 100;
      op.end_ns = at + 9'000 - depth * 100;
      op.name = names[(pick + static_cast<size_t>(depth)) % names.size()];
      op.thread = thread;
      op.sequence = depth == 0 ? group : -1;
      builder.Add(op);
    }
    RuntimeCall call;
    call.begin_ns = at + 1'000;
    call.end_ns = at + 5'000;
    call.correlation = group + 1;
    call.name = launch;
    call.thread = thread;
    builder.Add(call);
    Kernel kernel;
    kernel.begin_ns = at + 6'000;
    kernel.end_ns = at + 15'000;
    kernel.correlation = group + 1;
    kernel.stream = 7;
    kernel.name = kernels[pick % kernels.size()];
    kernel.grid = {static_cast<int32_t>(group % 512 + 1), 1, 1};
    kernel.block = {128, 1, 1};
    kernel.registers_per_thread = 32;
    builder.Add(kernel);
  }
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind)
    builder.Watch(static_cast<Kind>(kind));
  return builder.Build();
}

void AddSpeed(const std::string& name, const std::string& unit, double amount,
              std::vector<double> seconds, double bound, Results& results) {
  // Bounds are upper ones: what is held is the time per unit of work.
  std::vector<double> per_unit;
  for (double s : seconds) per_unit.push_back(s / amount);
  results.Add({.name = name,
               .unit = "s per " + unit,
               .ours = Median(per_unit),
               .limit = 1 / bound,
               .repetitions = static_cast<int>(seconds.size()),
               .spread = Spread(per_unit),
               .bound = 1 / bound,
               .bound_is_absolute = true});
  std::printf("  %s: %.1f %s per s, at least %.1f wanted\n", name.c_str(),
              1 / Median(per_unit), unit.c_str(), bound);
}

void ReadRows(const std::string& path, const std::string& scratch,
              Results& results) {
  const std::string plain = Plain(path, scratch);
  const double size = static_cast<double>(fs::file_size(plain));
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    const double s = Seconds([&] { ReadOrFail(plain); });
    if (round > 0) seconds.push_back(s);  // the first warms the page cache
  }
  std::string name = fs::path(path).filename().string();
  name.resize(name.find('.'));
  AddSpeed("read_" + name, "MB", size / kMb, seconds, 200, results);
  fs::remove(plain);
}

void MadeUpRows(int64_t events, const std::string& scratch, Results& results) {
  const auto count = static_cast<double>(events);
  const std::string chrome = scratch + "/made_up.json";
  const std::string xspace = scratch + "/made_up.xplane.pb";
  Trace trace;
  double trace_bytes = MemoryOf([&] { trace = MadeUp(events); }).kept_bytes;
  std::vector<double> chrome_s, xspace_s;
  double write_bytes = 0;
  for (int round = 0; round < 3; ++round) {
    const Memory memory = MemoryOf([&] {
      chrome_s.push_back(
          Seconds([&] { WriteOrFail(trace, Format::kChromeKineto, chrome); }));
    });
    write_bytes = std::max(write_bytes, memory.peak_bytes);
  }
  AddSpeed("write_chrome", "MB",
           static_cast<double>(fs::file_size(chrome)) / kMb, chrome_s, 150,
           results);
  results.Add({.name = "write_chrome_memory",
               .unit = "bytes",
               .ours = write_bytes,
               .repetitions = 3,
               .bound = 64 * kMb * 1.048576,
               .bound_is_absolute = true});
  write_bytes = 0;
  for (int round = 0; round < 3; ++round) {
    const Memory memory = MemoryOf([&] {
      xspace_s.push_back(
          Seconds([&] { WriteOrFail(trace, Format::kXSpace, xspace); }));
    });
    write_bytes = std::max(write_bytes, memory.peak_bytes);
  }
  AddSpeed("write_xspace", "M events", count / kMb, xspace_s, 2, results);
  results.Add({.name = "write_xspace_memory",
               .unit = "bytes",
               .ours = write_bytes,
               .repetitions = 3,
               .bound = 64 * kMb * 1.048576,
               .bound_is_absolute = true});
  trace = Trace();
  Trace again;
  for (const std::string& path : {chrome, xspace}) {
    again = Trace();
    double seconds = 0;
    const Memory memory =
        MemoryOf([&] { seconds = Seconds([&] { again = ReadOrFail(path); }); });
    const bool is_chrome = path == chrome;
    results.Add(
        {.name = is_chrome ? "read_chrome_memory" : "read_xspace_memory",
         .unit = "bytes",
         .ours = memory.peak_bytes,
         .limit = memory.kept_bytes,
         .repetitions = 1,
         .bound = 1.5 * trace_bytes + 256 * kMb * 1.048576,
         .bound_is_absolute = true});
    AddSpeed(is_chrome ? "read_own_chrome" : "read_xspace",
             is_chrome ? "MB" : "M events",
             is_chrome ? static_cast<double>(fs::file_size(path)) / kMb
                       : count / kMb,
             {seconds}, is_chrome ? 200 : 0.5, results);
    fs::remove(path);
  }
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  using namespace stepscope::bench;
  std::string out = "trace_files.jsonl";
  std::string scratch = ".";
  double millions = 2;
  std::vector<std::string> traces;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--out") {
      out = value();
    } else if (word == "--scratch") {
      scratch = value();
    } else if (word == "--events") {
      millions = std::atof(value());
    } else {
      traces.push_back(word);
    }
  }
  Results results(out);
  for (const std::string& trace : traces) ReadRows(trace, scratch, results);
  if (millions > 0) {
    MadeUpRows(static_cast<int64_t>(millions * 1e6), scratch, results);
  }
  return results.missed() == 0 ? 0 : 3;
}
