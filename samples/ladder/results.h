// Where the ladder leaves its figures: a Markdown file with a part for each
// device, and a picture beside it.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "ascent.h"
#include "resnet/options.h"

namespace ladder {

// Writes the part of `device` in the file `path` and leaves the rest as it is;
// a file that is not there is begun, with both parts. The picture is
// ladder_cpu.svg or ladder_gpu.svg beside it.
// Errors: Unavailable (cannot be written), InvalidArgument (marks are damaged).
absl::Status WriteResults(const Ladder& ladder, resnet::DeviceKind device,
                          const std::string& path, const std::string& date,
                          const std::string& command);

}  // namespace ladder
