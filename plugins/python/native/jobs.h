// The jobs of stepscope_call(): the functions of the command line, from a JSON
// request to text.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace stepscope {

// Runs job `name`. `request` may be null. Errors: InvalidArgument for the name
// or the request; read errors.
absl::StatusOr<std::string> RunJob(std::string_view name, const char* request);

}  // namespace stepscope
