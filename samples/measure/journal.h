// Journal: every run measured so far, a line of JSON each, so that a
// measurement of many minutes can be stopped and gone on with.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <map>
#include <string>

#include "run_times.h"

namespace measure {

class Journal {
 public:
  // Reads what is in `path`, which need not exist; "" keeps nothing beyond
  // this object. A last line without an end (the program was killed) is taken
  // away.
  // Errors: DataLoss, with the line that cannot be read; Unavailable, if the
  // file cannot be written.
  static absl::StatusOr<Journal> Open(const std::string& path);

  // The run noted under `key`, or nullptr.
  const RunTimes* Find(const std::string& key) const;

  // Notes a run, on the disk before this returns. Errors: Unavailable.
  absl::Status Add(const std::string& key, RunTimes times);

  size_t size() const { return runs_.size(); }

 private:
  std::string path_;
  std::map<std::string, RunTimes> runs_;
};

}  // namespace measure
