#include "advice/case.h"

#include <absl/status/status.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stepscope {
namespace {

absl::Status Wrong(int line, const std::string& what) {
  return absl::InvalidArgumentError("line " + std::to_string(line) + ": " +
                                    what);
}

// Reads one line of a case's header into `one`. Returns false if the line is
// malformed.
bool ReadHead(const std::string& line, AdviceCase& one) {
  std::istringstream words(line);
  std::string verb, word;
  words >> verb;
  if (verb.empty() || verb[0] == '#') return true;
  if (verb == "vary") {
    std::string name, range;
    words >> name >> range;
    const size_t dots = range.find("..");
    if (dots == std::string::npos) return false;
    const double low = std::atof(range.c_str());
    const double high = std::atof(range.c_str() + dots + 2);
    one.vary[name] = {low, high};
    return high >= low;
  }
  if (verb == "sporadic") {
    one.sporadic = true;
    return true;
  }
  if (verb == "pending") {
    one.pending = line.substr(verb.size());
    return true;
  }
  std::vector<std::string>* list = verb == "plant"   ? &one.plant
                                   : verb == "note"  ? &one.note
                                   : verb == "allow" ? &one.allow
                                                     : nullptr;
  if (list == nullptr) return false;
  while (words >> word && word[0] != '#') list->push_back(word);
  return true;
}

}  // namespace

absl::StatusOr<std::vector<AdviceCase>> ParseCases(std::string_view text) {
  std::vector<AdviceCase> cases;
  std::string shared;
  bool head = false;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.starts_with("=== ")) {
      cases.push_back({.name = line.substr(4), .program = shared});
      head = true;
    } else if (line == "---") {
      if (!head) return Wrong(number, "--- without a case");
      head = false;
    } else if (head) {
      if (!ReadHead(line, cases.back())) {
        return Wrong(number, "cannot read \"" + line + "\"");
      }
    } else if (cases.empty()) {
      shared += line + '\n';
    } else {
      cases.back().has_fix |= line.starts_with('-') || line.starts_with('+');
      cases.back().program += line + '\n';
    }
  }
  if (head) return Wrong(0, "the last case has no program");
  return cases;
}

absl::StatusOr<std::vector<AdviceCase>> ReadCases(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  if (files.empty()) {
    return absl::NotFoundError("no *.case in " + folder);
  }
  std::ranges::sort(files);
  std::vector<AdviceCase> all;
  for (const auto& path : files) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    absl::StatusOr<std::vector<AdviceCase>> cases = ParseCases(text);
    if (!cases.ok()) {
      return absl::InvalidArgumentError(path.filename().string() + ", " +
                                        std::string(cases.status().message()));
    }
    for (AdviceCase& one : *cases) {
      one.name = path.stem().string() + ": " + one.name;
      all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace stepscope
