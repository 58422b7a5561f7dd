#include <stepscope/read.h>

#include <memory>

#include "formats/bytes_reader.h"
#include "formats/chrome_peek_reader.h"
#include "formats/chrome_trace_reader.h"

namespace stepscope {

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  absl::StatusOr<std::unique_ptr<BytesReader>> bytes = OpenJson(path);
  if (!bytes.ok()) return bytes.status();
  return ReadChromeTrace(path, bytes->get());
}

}  // namespace stepscope
