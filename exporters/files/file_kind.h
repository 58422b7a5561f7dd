// Which format a file has, by its first bytes.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "io/bytes_reader.h"

namespace stepscope {

enum class FileFormat : uint8_t { kJson, kXSpace };

// What the first bytes of `bytes` say, which is the file at `path` and stays to
// be read from its beginning. Errors: InvalidArgument (the message says what
// the file looks like instead), DataLoss (it cannot be decompressed).
absl::StatusOr<FileFormat> FormatOf(const std::string& path,
                                    BytesReader* bytes);

}  // namespace stepscope
