// The jobs of stepscope_call(): what the command line does, from a JSON request
// to text.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace stepscope {

// `request` may be null. Errors: InvalidArgument for the name or the request;
// those of reading.
absl::StatusOr<std::string> RunJob(std::string_view name, const char* request);

}  // namespace stepscope
