// RankExchange: how the ranks of a job hand each other the digests of their
// windows, so that rank 0 makes one report of all of them
// (ProfileOptions::exchange). It is a key-value store that all ranks of the job
// share; with LibTorch, that of the process group (stepscope/store_exchange.h).
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <optional>
#include <string>

namespace stepscope {

// Called on the Profile's background thread, one call at a time, and never
// while the program waits for it. A call may take as long as a round trip
// through the network; it must not wait for another rank, and must not be a
// collective: those of the program would wait for it, or meet it. It may throw;
// that is an error like any other.
class RankExchange {
 public:
  virtual ~RankExchange() = default;

  // Puts `value` (any bytes, less than 4 MB) where all ranks find it. Each key
  // is put once. Need not wait until it has arrived. FailedPrecondition: there
  // is no store, and files are used. Other errors are shown, and files are
  // used.
  virtual absl::Status Put(const std::string& key,
                           const std::string& value) = 0;

  // The value; nullopt while no rank has put it. Returns at once. Errors as of
  // Put().
  virtual absl::StatusOr<std::optional<std::string>> Get(
      const std::string& key) = 0;
};

}  // namespace stepscope
