// The header of a Chrome trace: the keys beside `traceEvents`, Kineto's and our
// own object "stepscope".
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct ChromeHeader {
  // Where our own file drew a thread, and its place in threads().
  struct FileThread {
    int64_t pid = 0;
    int64_t tid = 0;
    Thread thread;
    std::string name;
  };

  bool is_ours = false;  // has an object "stepscope"
  bool is_tb_flavour = false;
  bool is_kineto = false;  // has keys only Kineto writes
  int64_t base_ns = 0;     // unix ns of `ts` 0
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;
  RunInfo run;  // what the keys say; ours: all of it
  // The rest is in our own files only.
  std::vector<FileThread> threads;
  std::vector<Kind> watched;
  std::vector<Loss> losses;
};

// Reads `json`, one object. False if it is no JSON.
bool ReadChromeHeader(const std::string& json, ChromeHeader* header);

// The part of it that reads our object "stepscope", if there is one.
void ReadOwnHeader(const std::string& json, ChromeHeader* header);

// Adds the tables that our own header holds as rows (settings, host_usage,
// loaders, streams, device_samples) to `builder`.
void AddHeaderRows(const std::string& json, TraceBuilder* builder);

}  // namespace stepscope
