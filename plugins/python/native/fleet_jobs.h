// The jobs with which stepscope.fleet makes a report of many ranks, each in its
// own process if necessary: find the traces, digest each, merge the digests.
// Keys and answers: stepscope_c.h.
#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "json_request.h"

namespace stepscope {

absl::StatusOr<std::string> RunTraces(JsonRequest& request);
absl::StatusOr<std::string> RunDigest(JsonRequest& request);
absl::StatusOr<std::string> RunMerge(JsonRequest& request);

}  // namespace stepscope
