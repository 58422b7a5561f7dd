// CuptiSwitches: switches on what a window needs from CUPTI, and remembers how
// to undo it. If something essential fails, everything is undone. If something
// optional fails, it is left out with a note.
//
// Used by one thread.
#pragma once

#include <absl/status/status.h>
#include <stepscope/collectors.h>
#include <stepscope/event.h>

#include <cstdint>
#include <vector>

#include "api/cupti_api.h"

namespace stepscope {

class CuptiSwitches {
 public:
  explicit CuptiSwitches(CuptiApi& api) : api_(api) {}
  CuptiSwitches(const CuptiSwitches&) = delete;
  CuptiSwitches& operator=(const CuptiSwitches&) = delete;
  ~CuptiSwitches() { Off(nullptr); }

  // Registers the buffer callbacks and enables the kinds of record that
  // `options` selects. After an error (CuptiError()) nothing is on. Optional
  // parts that failed are added to `losses`. `has_clocks`: another source
  // records clocks and power.
  absl::Status On(const CuptiOptions& options, std::vector<Loss>* losses,
                  bool has_clocks = false);

  // Undoes everything in reverse order. Continues after a failure, which is
  // added to `losses` if that is not null. Does nothing if nothing is on.
  void Off(std::vector<Loss>* losses);

  // The kinds for the Trace's watched().
  const std::vector<Kind>& watched() const { return watched_; }
  // The number of switches that are on.
  size_t count() const { return on_.size(); }

 private:
  struct Switch {
    CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
    bool is_polling = false;  // leaves out polls; not a kind
  };
  CUptiResult OnKind(CUpti_ActivityKind kind, bool dump);
  // Records the calls worth recording, or all calls if CUPTI cannot select.
  CUptiResult OnCalls(CUpti_CallbackDomain domain, CUpti_ActivityKind kind,
                      bool all);

  CuptiApi& api_;
  std::vector<Switch> on_;
  std::vector<Kind> watched_;
};

}  // namespace stepscope
