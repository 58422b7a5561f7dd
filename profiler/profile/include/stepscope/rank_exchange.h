// RankExchange: lets the ranks of a job exchange the digests of their windows,
// so that rank 0 can make one report of all ranks (ProfileOptions::exchange).
// It is a key-value store that all ranks of the job share. With LibTorch it is
// the store of the process group (stepscope/store_exchange.h).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <optional>
#include <string>

namespace stepscope {

// Called on the Profile's background thread, one call at a time, and never
// while the program waits for the call. A call may take a round trip through
// the network. It must not wait for another rank and must not be a collective,
// because the program's own collectives would wait for it or be mixed up with
// it. An exception counts as an error.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  // Stores `value` (any bytes, less than 4 MB) where all ranks find it. Each
  // key is stored once. The call may return before the value has arrived. After
  // any error, files are used. FailedPrecondition means that there is no store;
  // all other errors are shown.
  virtual absl::Status Put(const std::string& key,
                           const std::string& value) = 0;

  // Returns the value, or nullopt if no rank has stored it yet. Does not wait.
  // Errors as for Put().
  virtual absl::StatusOr<std::optional<std::string>> Get(
      const std::string& key) = 0;
};

}  // namespace stepscope
