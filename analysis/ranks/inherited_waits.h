// InheritedWaits finds out which rank made another rank late: a rank that
// waited in one group arrives late in its other groups without being slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace stepscope {

class InheritedWaits {
 public:
  explicit InheritedWaits(size_t ranks) : ranks_(ranks) {}

  struct Delay {
    double ns = 0;
    size_t source = SIZE_MAX;  // index of the rank that caused most of it
  };
  // Returns how long the rank has waited in other groups since its last
  // collective of `group`.
  Delay Of(size_t rank, size_t group) const;
  // Returns how long the rank has waited in all groups so far in `step`. The
  // source is that of its longest wait in any group but `group`.
  Delay InStep(size_t rank, int64_t step, size_t group) const;
  // Records that the rank takes part in a collective of `group`, at which it
  // waits `ns` for `source` (0 ns: it does not wait). Call in order of time.
  void Add(size_t rank, int64_t step, size_t group, size_t source, double ns);

 private:
  struct Wait {
    int64_t step = 0;
    size_t group = 0, source = 0;
    double ns = 0;
  };
  struct OfRank {
    std::deque<Wait> waits;  // the latest
    size_t dropped = 0;      // number of earlier waits
    // By group: how many waits came before the rank's last collective in it.
    std::unordered_map<size_t, size_t> seen;
  };
  std::vector<OfRank> ranks_;
};

}  // namespace stepscope
