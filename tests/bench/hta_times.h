// HtaTimes: what HTA took for the same files, as hta_times.py measured in the
// same run.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace stepscope::bench {

class HtaTimes {
 public:
  struct Times {
    double load_s = 0;
    double temporal_s = 0;  // get_temporal_breakdown(), once loaded
  };
  HtaTimes() = default;
  // Lines of "name load temporal"; a file that is not there holds none.
  explicit HtaTimes(const std::string& path);
  // Those of ShortName() of a trace.
  std::optional<Times> Of(const std::string& name) const {
    const auto found = times_.find(name);
    if (found == times_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::map<std::string, Times> times_;
};

}  // namespace stepscope::bench
