// For any bytes, the XSpace reader returns a Trace or an error.
#include <stepscope/trace.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "io/bytes_reader.h"
#include "xspace/reader/xspace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  absl::StatusOr<std::unique_ptr<stepscope::BytesReader>> reader =
      stepscope::BytesReader::Make(path);
  if (!reader.ok()) return 0;  // a damaged archive
  const absl::StatusOr<stepscope::Trace> trace =
      stepscope::ReadXSpace(path, reader->get());
  if (!trace.ok()) {
    if (trace.status().message().empty()) std::abort();
    return 0;
  }
  for (const stepscope::Kernel& kernel : trace->kernels()) {
    if (kernel.end_ns < kernel.begin_ns) std::abort();
    if (kernel.name >= trace->name_count()) std::abort();
  }
  for (const stepscope::Range& range : trace->ranges()) {
    if (range.thread != stepscope::kNone &&
        range.thread >= trace->threads().size()) {
      std::abort();
    }
  }
  return 0;
}
