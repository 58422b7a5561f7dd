// FusedOps: describes the operators of compiled kernels, by interned name. Each
// name is parsed once, because a Trace has few names and many events.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// One thread at a time.
class FusedOps {
 public:
  // `trace` must outlive this.
  explicit FusedOps(const Trace& trace)
      : trace_(trace), index_(trace.name_count()) {}

  // Returns "add + relu (compiled)", for example; "" if the name is not that of
  // a compiled kernel. Valid until the next call.
  const std::string& Of(NameId name);

 private:
  const Trace& trace_;
  std::vector<uint32_t> index_;  // by NameId: index in texts_ + 1; 0: unset
  std::vector<std::string> texts_ = {""};
};

}  // namespace stepscope
