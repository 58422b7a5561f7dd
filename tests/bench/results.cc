#include "results.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace stepscope::bench {
namespace {

std::string Machine() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2) + ", " +
             std::to_string(std::thread::hardware_concurrency()) + " threads";
    }
  }
  return "unknown";
}

std::string Number(std::optional<double> value) {
  if (!value.has_value()) return "null";
  std::ostringstream text;
  text.precision(6);
  text << *value;
  return text.str();
}

std::string Cell(std::optional<double> value) {
  char text[32];
  if (!value.has_value()) return "-";
  const bool is_small = *value != 0 && std::abs(*value) < 0.1;
  std::snprintf(text, sizeof(text), is_small ? "%.2e" : "%.4g", *value);
  return text;
}

// Returns nothing if `other` was not measured, is zero, or is noise below zero.
std::optional<double> Over(double ours, std::optional<double> other) {
  if (!other.has_value() || *other <= 0) return std::nullopt;
  return ours / *other;
}

double Quantile(const std::vector<double>& sorted, double frac) {
  const double place = frac * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] +
         (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return Quantile(values, 0.5);
}

double Spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double median = std::abs(Quantile(values, 0.5));
  if (median == 0) return 0;
  return (Quantile(values, 0.75) - Quantile(values, 0.25)) / median;
}

Results::Results(const std::string& path)
    : file_(std::fopen(path.c_str(), "w")), machine_(Machine()) {
  if (file_ == nullptr) {
    std::fprintf(stderr, "bench: cannot write %s\n", path.c_str());
    std::exit(1);
  }
  std::printf("%s\n\n%-18s %-9s %10s %10s %10s %11s %11s %7s  %s\n",
              machine_.c_str(), "name", "unit", "ours", "peer", "limit",
              "ours/peer", "ours/limit", "spread", "");
}

Results::~Results() { std::fclose(file_); }

void Results::Add(const Result& result) {
  rows_[result.name] = result;
  const std::optional<double> ratio = Over(result.ours, result.peer);
  const std::optional<double> of_limit = Over(result.ours, result.limit);
  bool is_ok = true;
  if (result.bound_is_absolute) {
    is_ok &= result.ours <= result.bound;
  } else if (result.bound.has_value()) {
    is_ok &= ratio.has_value() && *ratio <= result.bound;
  }
  if (result.bound_of_limit.has_value()) {
    is_ok &= of_limit.has_value() && *of_limit <= result.bound_of_limit;
  }
  missed_ += is_ok ? 0 : 1;
  const bool is_bound =
      result.bound.has_value() || result.bound_of_limit.has_value();
  std::printf("%-18s %-9s %10s %10s %10s %11s %11s %6.0f%%  %s\n",
              result.name.c_str(), result.unit.c_str(),
              Cell(result.ours).c_str(), Cell(result.peer).c_str(),
              Cell(result.limit).c_str(), Cell(ratio).c_str(),
              Cell(of_limit).c_str(), 100 * result.spread,
              !is_ok     ? "MISSED"
              : is_bound ? "ok"
                         : "");
  std::fflush(stdout);
  std::fprintf(file_,
               "{\"name\": \"%s\", \"ours\": %s, \"peer\": %s, \"limit\": %s, "
               "\"ratio\": %s, \"unit\": \"%s\", \"repetitions\": %d, "
               "\"spread\": %s, \"machine\": \"%s\"}\n",
               result.name.c_str(), Number(result.ours).c_str(),
               Number(result.peer).c_str(), Number(result.limit).c_str(),
               Number(ratio).c_str(), result.unit.c_str(), result.repetitions,
               Number(result.spread).c_str(), machine_.c_str());
  std::fflush(file_);
}

void Results::Skip(const std::string& name, const std::string& why) {
  ++missed_;
  std::printf("%-18s left out: %s\n", name.c_str(), why.c_str());
}

}  // namespace stepscope::bench
