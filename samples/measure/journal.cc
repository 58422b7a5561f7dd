#include "journal.h"

#include <simdjson.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "json_text.h"

namespace measure {
namespace {

// {"key": "...", "run": {...}}
absl::Status ReadLine(const std::string& line, const std::string& where,
                      std::map<std::string, RunTimes>* runs) {
  simdjson::dom::parser parser;
  simdjson::dom::element root, run;
  std::string_view key;
  if (parser.parse(simdjson::padded_string(line)).get(root) ||
      root["key"].get(key) || root["run"].get(run)) {
    return absl::DataLossError(where + " is no run noted by this program");
  }
  absl::StatusOr<RunTimes> times =
      ParseRunTimes(simdjson::to_string(run), where);
  if (!times.ok()) return times.status();
  (*runs)[std::string(key)] = *std::move(times);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Journal> Journal::Open(const std::string& path) {
  Journal journal;
  journal.path_ = path;
  std::error_code code;
  if (path.empty() || !std::filesystem::exists(path, code)) return journal;
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  size_t begin = 0;
  for (int number = 1; begin < text->size(); ++number) {
    const size_t end = text->find('\n', begin);
    if (end == text->npos) break;
    absl::Status read =
        ReadLine(text->substr(begin, end - begin),
                 path + ", line " + std::to_string(number), &journal.runs_);
    if (!read.ok()) return read;
    begin = end + 1;
  }
  if (begin < text->size()) {
    std::filesystem::resize_file(path, begin, code);
    if (code) {
      return absl::UnavailableError("cannot shorten " + path + ": " +
                                    code.message());
    }
  }
  return journal;
}

const RunTimes* Journal::Find(const std::string& key) const {
  const auto at = runs_.find(key);
  return at == runs_.end() ? nullptr : &at->second;
}

absl::Status Journal::Add(const std::string& key, RunTimes times) {
  JsonObject line;
  line.Add("key", key);
  line.Add("run", ToJson(times));
  runs_[key] = std::move(times);
  if (path_.empty()) return absl::OkStatus();
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << line.Text() << '\n';
  file.close();
  if (!file) {
    return absl::UnavailableError("cannot write " + path_ + ": " +
                                  std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace measure
