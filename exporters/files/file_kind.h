// Recognises the format of a file by its first bytes.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

#include "io/bytes_reader.h"

namespace stepscope {

enum class FileFormat : uint8_t { kJson, kXSpace };

// Returns the format of the file at `path`, which `bytes` has opened. `bytes`
// can still be read from its start afterwards. Errors: InvalidArgument (the
// message says what the file looks like instead), DataLoss (it cannot be
// decompressed).
absl::StatusOr<FileFormat> FormatOf(const std::string& path,
                                    BytesReader* bytes);

}  // namespace stepscope
