// Keeps the buffers that CUPTI fills during some work. Separate from code that
// uses LibTorch, because this file's source includes CUPTI's headers.
#pragma once

#include <absl/status/status.h>

#include <functional>
#include <string>

namespace stepscope {

// Runs `work` in a window of the CUPTI collector and writes its buffers to
// `path` (recorded_cupti.h). Returns errors of the collector or of the file.
absl::Status RecordBuffers(const std::function<void()>& work,
                           const std::string& path);

}  // namespace stepscope
