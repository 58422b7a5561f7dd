// Returns what a profile printed to stderr, without the lines about writing.
#ifndef STEPSCOPE_TESTS_SUPPORT_WITHOUT_PROGRESS_H_
#define STEPSCOPE_TESTS_SUPPORT_WITHOUT_PROGRESS_H_

#include <sstream>
#include <string>

namespace stepscope {

// A slow machine prints such lines where a fast one has already finished.
inline std::string WithoutProgress(const std::string& said) {
  std::istringstream lines(said);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("writing the recorded window (") == std::string::npos) {
      rest += line + "\n";
    }
  }
  return rest;
}

}  // namespace stepscope

#endif  // STEPSCOPE_TESTS_SUPPORT_WITHOUT_PROGRESS_H_
