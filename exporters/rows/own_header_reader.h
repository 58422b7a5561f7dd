// Reads the header object "stepscope" that own_header_writer.h writes into our
// Chrome traces and XSpaces (docs/chrome_trace.md lists its keys).
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct OwnHeader {
  // A row of threads(), and the numbers it has in the file.
  struct DrawnThread {
    int64_t pid = 0;
    int64_t tid = 0;
    Thread thread;
    std::string name;
  };

  bool is_ours = false;  // the object is there
  bool is_tb_flavour = false;
  RunInfo run;
  std::vector<DrawnThread> threads;
  std::vector<Kind> watched;
  std::vector<Loss> losses;
};

// Reads the member "stepscope" of the object `json` into `header`. Leaves
// `header` unchanged if there is none. Damaged members keep their defaults.
void ReadOwnHeader(const std::string& json, OwnHeader* header);

// Adds the rows in the same object (settings, host_usage, loaders, streams,
// device_samples) to `builder`.
void AddHeaderRows(const std::string& json, TraceBuilder* builder);

}  // namespace stepscope
