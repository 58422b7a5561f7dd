// Results: one line of a table on stdout and one JSON object a line in a file.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace stepscope::bench {

double Median(std::vector<double> values);
// The distance between the quartiles, over the median.
double SpreadFrac(std::vector<double> values);

struct Result {
  std::string name;
  std::string unit;
  double ours = -1;  // medians; -1: there is none
  double peer = -1;
  double limit = -1;
  int repetitions = 0;
  double spread_frac = -1;  // of ours
  double bound = -1;  // what `ours / peer` must not exceed, or ours itself
                      // where there is no peer to speak of
  bool bound_is_absolute = false;
  double bound_of_limit = -1;  // what `ours / limit` must not exceed
};

// Prints and writes; counts what misses its bound.
class Results {
 public:
  explicit Results(const std::string& path);
  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

  void Add(const Result& result);
  // Says why a row is not there.
  void Skip(const std::string& name, const std::string& why);

  int missed() const { return missed_; }
  // `ours` and `peer` of a row that was added.
  const Result& row(const std::string& name) const { return rows_.at(name); }

 private:
  std::FILE* file_;
  std::string machine_;
  std::map<std::string, Result> rows_;
  int missed_ = 0;
};

}  // namespace stepscope::bench
