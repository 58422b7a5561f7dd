// The jobs that stepscope.fleet makes a report of many ranks with, each in a
// process of its own if need be: find the traces, digest each, merge the
// digests. Keys and answers: stepscope_c.h.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "json_request.h"

namespace stepscope {

absl::StatusOr<std::string> RunTraces(JsonRequest& request);
absl::StatusOr<std::string> RunDigest(JsonRequest& request);
absl::StatusOr<std::string> RunMerge(JsonRequest& request);

}  // namespace stepscope
