// WhatIf: predicts the step time of a recorded run under changes that nobody
// has made yet. Compare() predicts the same gains for the same changes once
// they are made.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stepscope {

// Changes to predict together.
struct Change {
  std::vector<std::string> findings = {};  // ids of findings to follow
  // Keys and values of docs/json.md, "Settings". They override what `findings`
  // set.
  std::vector<Setting> settings = {};
};

// Threads: once constructed, any number of threads may call its const members.
class WhatIf {
 public:
  // Analyses `trace`, which must outlive this object.
  explicit WhatIf(const Trace& trace);
  ~WhatIf();
  WhatIf(WhatIf&&) noexcept;
  WhatIf& operator=(WhatIf&&) noexcept;

  // Why nothing can be predicted for this run (no steps, or the unchanged
  // replay does not reproduce it); empty if predictions are possible.
  const std::string& why_not() const;

  // Returns the gain of `change` in ms per step, negative for a loss, 0 if
  // nothing changes. If `change` sets the batch size, the gain is normalised to
  // the recorded batch size. With a GPU, a setting other than `workers` stands
  // for the edit of the finding that advises it.
  //
  // Returns nullopt if replay cannot express part of `change`: an unknown
  // setting, a setting that affects only steps that are not replayed, a finding
  // that the report does not have, or one whose gain is only a bound. Also if
  // why_not() is not empty.
  std::optional<Gain> Predict(const Change& change) const;

 private:
  struct Recording;
  std::unique_ptr<const Recording> recording_;
};

}  // namespace stepscope
