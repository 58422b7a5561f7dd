// Makes a Status from errno. Its message says what was tried, what failed and
// what to do.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace stepscope {

// "cannot <what> '<path>': <text of error_number>; <what to do>". Codes:
// PermissionDenied, NotFound, ResourceExhausted (disk full, quota, file too
// large), InvalidArgument (a folder, a name too long), Unavailable (the rest).
absl::Status FileError(const std::string& what, const std::string& path,
                       int error_number);

}  // namespace stepscope
