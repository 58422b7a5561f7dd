// Reads a path into a Trace: decompresses the file, recognises the format by
// the content, and calls the reader of that format.
#include <stepscope/read.h>

#include <memory>

#include "chrome/reader/chrome_trace_reader.h"
#include "files/file_kind.h"
#include "io/bytes_reader.h"
#include "xspace/reader/xspace_reader.h"

namespace stepscope {

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<FileFormat> format = FormatOf(path, bytes->get());
  if (!format.ok()) return format.status();
  if (*format == FileFormat::kXSpace) return ReadXSpace(path, bytes->get());
  return ReadChromeTrace(path, bytes->get());
}

}  // namespace stepscope
