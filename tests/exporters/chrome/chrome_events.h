// Reads Chrome traces for tests: we write them, and simdjson parses them.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/export.h>

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/temp_folder.h"

namespace stepscope {

inline std::string FileOf(const Trace& trace, Format format,
                          std::span<const Annotation> annotations = {}) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/trace.json";
  const absl::Status status = WriteTrace(trace, annotations, format, path);
  EXPECT_TRUE(status.ok()) << status;
  return ReadBytes(path);
}

struct Event {
  std::string line;  // the event's line in the file
  std::string phase, category, name;
  std::string pid, tid;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::map<std::string, std::string> args;  // values as minified JSON
};

inline int64_t ToNs(simdjson::dom::element us) {
  return std::llround(double(us) * 1000);
}

inline std::string Text(const simdjson::dom::element& object, const char* key) {
  simdjson::dom::element value;
  if (object[key].get(value) != simdjson::SUCCESS) return "";
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) return std::string(text);
  return simdjson::minify(value);
}

// Returns the events of a Chrome file, parsed by another library than the
// writer's.
inline std::vector<Event> EventsOf(const std::string& file) {
  static simdjson::dom::parser parser;
  simdjson::dom::element root;
  EXPECT_EQ(parser.parse(file).get(root), simdjson::SUCCESS);
  std::vector<Event> events;
  for (simdjson::dom::element item : root["traceEvents"].get_array()) {
    Event event;
    event.phase = Text(item, "ph");
    event.category = Text(item, "cat");
    event.name = Text(item, "name");
    event.pid = Text(item, "pid");
    event.tid = Text(item, "tid");
    event.begin_ns = ToNs(item["ts"]);
    simdjson::dom::element dur;
    event.end_ns = event.begin_ns;
    if (item["dur"].get(dur) == simdjson::SUCCESS) event.end_ns += ToNs(dur);
    simdjson::dom::object args;
    if (item["args"].get(args) == simdjson::SUCCESS) {
      for (auto [key, value] : args)
        event.args[std::string(key)] = simdjson::minify(value);
    }
    event.line = simdjson::minify(item);
    events.push_back(std::move(event));
  }
  return events;
}

inline std::vector<Event> EventsOf(const Trace& trace, Format format) {
  return EventsOf(FileOf(trace, format));
}

inline std::vector<Event> WithCategory(const std::vector<Event>& events,
                                       std::string_view category) {
  std::vector<Event> chosen;
  for (const Event& event : events)
    if (event.category == category) chosen.push_back(event);
  return chosen;
}

}  // namespace stepscope
