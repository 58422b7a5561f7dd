// Measures reading and writing trace files: the speed, and the memory above the
// Trace. Prints one line per row and writes one JSON object per line. Exits
// with 3 if a bound is missed.
//   trace_files_bench [--out FILE] [--scratch DIR] [--events MILLIONS]
//       [--hta FILE] TRACE...
// TRACE: files of torch.profiler, read uncompressed from the page cache.
#include <stepscope/export.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hta_times.h"
#include "measure.h"

namespace stepscope::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;

void WriteOrFail(const Trace& trace, Format format, const std::string& path) {
  const absl::Status written = WriteTrace(trace, {}, format, path);
  if (!written.ok()) Fail(std::string(written.message()));
}

// Writes an uncompressed copy of a file that may be gzipped.
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

void ReadRows(const std::string& path, const std::string& scratch,
              const HtaTimes& hta, Results& results) {
  const std::string plain = Plain(path, scratch);
  const double size = static_cast<double>(fs::file_size(plain));
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    const double s = Seconds([&] { ReadOrFail(plain); });
    if (round > 0) seconds.push_back(s);  // round 0 warms the page cache
  }
  AddSpeed("read_" + ShortName(path), "MB", size / kMb, seconds, 200, results);
  if (const auto times = hta.Of(ShortName(path))) {
    results.Add({.name = "hta_" + ShortName(path),
                 .unit = "s",
                 .ours = Median(seconds),
                 .peer = times->load_s,
                 .repetitions = kRounds,
                 .spread = Spread(seconds),
                 .bound = 1.0 / 15});
  }
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
  HtaTimes hta;
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
    } else if (word == "--hta") {
      hta = HtaTimes(value());
    } else {
      traces.push_back(word);
    }
  }
  Results results(out);
  for (const std::string& trace : traces) {
    ReadRows(trace, scratch, hta, results);
  }
  if (millions > 0) {
    MadeUpRows(static_cast<int64_t>(millions * 1e6), scratch, results);
  }
  return results.missed() == 0 ? 0 : 3;
}
