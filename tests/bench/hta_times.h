// HtaTimes: the times that HTA needed for the same files, measured by
// hta_times.py in the same run.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace stepscope::bench {

class HtaTimes {
 public:
  struct Times {
    double load_s = 0;
    double temporal_s = 0;  // get_temporal_breakdown() after loading
  };
  HtaTimes() = default;
  // Reads lines of "name load temporal". A missing file has none.
  explicit HtaTimes(const std::string& path);
  // Returns the times of the trace with this ShortName().
  std::optional<Times> Of(const std::string& name) const {
    const auto found = times_.find(name);
    if (found == times_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, Times> times_;
};

}  // namespace stepscope::bench
