#include <stepscope/read.h>

#include <memory>

#include "formats/bytes_reader.h"
#include "formats/chrome_peek_reader.h"
#include "formats/chrome_trace_reader.h"
#include "formats/xspace_reader.h"

namespace stepscope {

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  const absl::StatusOr<FileFormat> format = FormatOfFile(path);
  if (!format.ok()) return format.status();
  if (*format == FileFormat::kXSpace) return ReadXSpace(path);
  // From the start again: events are cut out of one stream.
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = BytesReader::Make(path);
  if (!bytes.ok()) return bytes.status();
  return ReadChromeTrace(path, bytes->get());
}

}  // namespace stepscope
