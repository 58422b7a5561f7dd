// Keeps the buffers CUPTI fills while something runs. Apart from what uses
// LibTorch: this side includes CUPTI's headers.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string>

namespace stepscope {

// Runs `work` in a window of the CUPTI collector and writes its buffers to
// `path` (recorded_cupti.h). Errors are the collector's, or of the file.
absl::Status RecordBuffers(const std::function<void()>& work,
                           const std::string& path);

}  // namespace stepscope
