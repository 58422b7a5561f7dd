// WhatIf: a recorded run under changes that nobody has made yet. The gains are
// those that compare predicts of the same changes once they are made.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

// Changes made together.
struct Change {
  std::vector<std::string> findings = {};  // whose advice is followed, by id
  // By the keys of analysis/README.md; they win over what findings set.
  std::vector<Setting> settings = {};
};

// Thread-safe once made.
class WhatIf {
 public:
  // `trace` must outlive this.
  explicit WhatIf(const Trace& trace);
  ~WhatIf();
  WhatIf(WhatIf&&) noexcept;
  WhatIf& operator=(WhatIf&&) noexcept;

  // Why replay speaks of no change to this run; empty if it does.
  const std::string& why_not() const;

  // What `change` wins, per step or, where it sets the batch, per as many
  // samples as a step has now; below 0: a loss. 0 for what is so already.
  // Nothing if replay cannot express part of it: a setting that it does not
  // know, or that only plays in steps that are not replayed; a finding that the
  // report does not have, or whose gain is a bound.
  std::optional<Gain> Predict(const Change& change) const;

 private:
  struct Recording;
  std::unique_ptr<const Recording> recording_;
};

}  // namespace stepscope
