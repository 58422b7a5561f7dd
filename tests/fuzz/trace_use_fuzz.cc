// Everything that can be read can be analysed, summed up, printed and written,
// and what is written can be read.
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/read.h>
#include <stepscope/summary.h>
#include <stepscope/top.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace stepscope {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void Print(const Trace& trace) {
  const Report report = Analyze(trace);
  Require(!ToText(report, {.color = true, .verbose = true}).empty());
  Require(ToJson(report).ends_with("}\n"));
  Require(!ToMarkdown(report).empty());
}

void Write(const Trace& trace, const std::string& folder) {
  for (const auto& [format, name] :
       {std::pair(Format::kChromeTb, "/t.pt.trace.json"),
        std::pair(Format::kChromeKineto, "/k.json"),
        std::pair(Format::kXSpace, "/h.xplane.pb")}) {
    const std::string path = folder + name;
    const absl::Status written = WriteTrace(trace, {}, format, path);
    if (!written.ok()) {
      Require(!written.message().empty());
      continue;
    }
    const absl::StatusOr<Trace> again = ReadTrace(path);
    Require(again.ok());
    Require(again->kernels().size() == trace.kernels().size());
    Require(again->copies().size() == trace.copies().size());
  }
}

// Returns a folder in memory if the machine has one.
std::string Folder() {
  const std::string base =
      std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
  std::string path = base + "/stepscope_fuzz_XXXXXX";
  Require(mkdtemp(path.data()) != nullptr);
  return path;
}

}  // namespace
}  // namespace stepscope

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  static const std::string folder = [] {
    static const std::string made = stepscope::Folder();
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(made, ignored);
    });
    return made;
  }();
  stepscope::Require(file >= 0 && ftruncate(file, 0) == 0 &&
                     pwrite(file, bytes, size, 0) ==
                         static_cast<ssize_t>(size));
  const absl::StatusOr<stepscope::Trace> trace =
      stepscope::ReadTrace("/proc/self/fd/" + std::to_string(file));
  if (!trace.ok()) return 0;
  stepscope::Print(*trace);
  stepscope::Write(*trace, folder);
  return 0;
}
