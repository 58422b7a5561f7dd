// Results: prints one table line per row to stdout, and writes one JSON object
// per line to a file.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepscope::bench {

double Median(std::vector<double> values);
// Returns the distance between the quartiles divided by the absolute median.
double Spread(std::vector<double> values);

struct Result {
  std::string name;
  std::string unit;
  double ours = 0;  // median, as is peer
  std::optional<double> peer = {};
  std::optional<double> limit = {};
  int repetitions = 0;
  double spread = 0;  // of ours
  // Upper bound of `ours / peer`, or of `ours` itself.
  std::optional<double> bound = {};
  bool bound_is_absolute = false;
  // Upper bound of `ours / limit`.
  std::optional<double> bound_of_limit = {};
};

// Prints and writes rows, and counts missed bounds.
class Results {
 public:
  explicit Results(const std::string& path);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  void Add(const Result& result);
  // Says why a row is missing. Counts as a missed bound.
  void Skip(const std::string& name, const std::string& why);

  int missed() const { return missed_; }
  // Returns the row of this name; null if there is none.
  const Result* row(const std::string& name) const {
    const auto it = rows_.find(name);
    return it == rows_.end() ? nullptr : &it->second;
  }

 private:
  std::FILE* file_;
  std::string machine_;
  std::map<std::string, Result> rows_;
  int missed_ = 0;
};

}  // namespace stepscope::bench
