// Makes and reads small Chrome traces for tests.
#pragma once

#include <absl/status/statusor.h>
#include <gtest/gtest.h>
#include <stepscope/read.h>

#include <string>
#include <string_view>

#include "support/losses.h"
#include "support/temp_folder.h"

namespace stepscope {

// Returns a file as Kineto writes it, with `events` (a list without brackets)
// and more header keys ("\"a\": 1,").
inline std::string KinetoFile(std::string_view events,
                              std::string_view header = "") {
  return "{\n  \"schemaVersion\": 1,\n  " + std::string(header) +
         "\n  \"traceEvents\": [\n" + std::string(events) + "\n  ]\n}\n";
}

inline std::string XEvent(std::string_view category, std::string_view name,
                          std::string_view times, std::string_view args = "") {
  return "{\"ph\": \"X\", \"cat\": \"" + std::string(category) +
         "\", \"name\": \"" + std::string(name) +
         "\", \"pid\": 10, \"tid\": 11, " + std::string(times) +
         ", \"args\": {" + std::string(args) + "}}";
}

class ChromeTextTest : public testing::Test {
 protected:
  absl::StatusOr<Trace> TryRead(std::string_view text,
                                const std::string& name = "trace.json") {
    return ReadTrace(folder_.Write(name, text));
  }
  Trace Read(std::string_view text) {
    absl::StatusOr<Trace> trace = TryRead(text);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? *std::move(trace) : Trace();
  }
  TempFolder folder_;
};

}  // namespace stepscope
