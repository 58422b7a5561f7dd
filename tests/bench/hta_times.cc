#include "hta_times.h"

#include <fstream>

namespace stepscope::bench {

HtaTimes::HtaTimes(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (Times times; file >> name >> times.load_s >> times.temporal_s;)
    times_[name] = times;
}

}  // namespace stepscope::bench
