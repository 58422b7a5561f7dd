// Results: one line of a table on stdout and one JSON object a line in a file.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepscope::bench {

double Median(std::vector<double> values);
// The distance between the quartiles, over the median's absolute value.
double Spread(std::vector<double> values);

struct Result {
  std::string name;
  std::string unit;
  double ours = 0;  // medians
  std::optional<double> peer = {};
  std::optional<double> limit = {};
  int repetitions = 0;
  double spread = 0;  // of ours
  // What `ours / peer` must not exceed, or ours itself.
  std::optional<double> bound = {};
  bool bound_is_absolute = false;
  // What `ours / limit` must not exceed.
  std::optional<double> bound_of_limit = {};
};

// Prints and writes; counts what misses its bound.
class Results {
 public:
  explicit Results(const std::string& path);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  void Add(const Result& result);
  // Says why a row is not there; counts as missed.
  void Skip(const std::string& name, const std::string& why);

  int missed() const { return missed_; }
  // A row that was added; null if there is none of that name.
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
