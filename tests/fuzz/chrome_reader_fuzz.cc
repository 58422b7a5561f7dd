// For any bytes, the reader returns a Trace or an error.
#include <stepscope/read.h>
#include <stepscope/trace.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  // The reader takes paths, so this is a file in memory.
  static const int file = memfd_create("fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  const absl::StatusOr<stepscope::Trace> trace =
      stepscope::ReadTrace("/proc/self/fd/" + std::to_string(file));
  if (!trace.ok()) {
    if (trace.status().message().empty()) std::abort();
    return 0;
  }
  for (const stepscope::Op& op : trace->ops()) {
    if (op.end_ns < op.begin_ns) std::abort();
    if (op.name >= trace->name_count()) std::abort();
  }
  return 0;
}
