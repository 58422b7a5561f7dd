#include "engine/plan_search.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "context/noise.h"
#include "replay/replay.h"

namespace stepscope {
namespace {

// A change must shorten the step by 1 % to be added, as a finding must to be
// more than a note.
constexpr double kWorthAdding = 0.99;
// What is a note by itself must gain what a finding of severity medium does,
// and more than noise: it is news only if it matters.
constexpr double kWorthRaising = 0.03;

bool IsNote(const SizedFinding& sized) {
  return sized.finding.severity == FindingSeverity::kNote;
}

class Search {
 public:
  Search(const AnalysisContext& context, const std::vector<SizedFinding>& found)
      : replay_(context.replay),
        noise_ns_(MinReportableGainMs(context) * 1e6),
        step_ns_(replay_.StepNs({})) {
    for (const SizedFinding& candidate : found) {
      if (candidate.edits.empty() || candidate.asks ||
          candidate.finding.gain_kind != GainKind::kPredicted) {
        continue;
      }
      // A small gain of a change that may have another cause is none.
      if (IsNote(candidate) &&
          candidate.finding.confidence == Confidence::kHint) {
        continue;
      }
      open_.push_back(&candidate);
    }
  }

  std::vector<PlannedChange> Run() {
    while (AddBest()) {
    }
    AddThoseThatHelpTogether();
    return std::move(changes_);
  }

 private:
  // One replay for each open change; all subsets would need 2^n.
  bool AddBest() {
    PlannedChange best;
    best.step_ns = step_ns_;
    for (const SizedFinding* candidate : open_) {
      for (const Edit& variant : candidate->edits) {
        Edit edit = Combine(edit_, variant);
        const double ns = replay_.StepNs(edit);
        const double enough =
            IsNote(*candidate) ? EnoughToRaise() : step_ns_ * kWorthAdding;
        if (ns < std::min(best.step_ns, enough)) {
          best = {candidate, &variant, std::move(edit), ns, false};
        }
      }
    }
    if (best.found == nullptr) return false;
    Add(std::move(best));
    return true;
  }

  // All open changes at once, and then without each that is not missed.
  void AddThoseThatHelpTogether() {
    std::vector<const SizedFinding*> kept = open_;
    double together = StepWith(kept);
    if (together >= EnoughToRaise()) return;
    std::ranges::stable_sort(kept, {}, [](const SizedFinding* one) {
      return one->finding.gain.expected_ms;
    });
    for (size_t i = 0; i < kept.size();) {
      std::vector<const SizedFinding*> fewer = kept;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const double ns = StepWith(fewer);
      if (ns * kWorthAdding <= together) {
        kept = std::move(fewer);
        together = ns;
      } else {
        ++i;
      }
    }
    // Leaving out several that are each hardly missed may have lost the gain.
    if (together >= EnoughToRaise()) return;
    for (const SizedFinding* one : kept) {
      Edit edit = Combine(edit_, one->edits.front());
      const double ns = replay_.StepNs(edit);
      Add({one, &one->edits.front(), std::move(edit), ns,
           /*needs_next=*/one != kept.back()});
    }
  }

  // The step that notes must reach.
  double EnoughToRaise() const {
    return step_ns_ - std::max(step_ns_ * kWorthRaising, noise_ns_);
  }

  double StepWith(const std::vector<const SizedFinding*>& more) const {
    Edit edit = edit_;
    for (const SizedFinding* one : more)
      edit = Combine(edit, one->edits.front());
    return replay_.StepNs(edit);
  }

  void Add(PlannedChange change) {
    edit_ = change.edit;
    step_ns_ = change.step_ns;
    std::erase(open_, change.found);
    changes_.push_back(std::move(change));
  }

  const Replay& replay_;
  double noise_ns_;
  std::vector<const SizedFinding*> open_;
  Edit edit_;  // all changes so far
  double step_ns_;
  std::vector<PlannedChange> changes_;
};

}  // namespace

std::vector<PlannedChange> ChooseChanges(
    const AnalysisContext& context, const std::vector<SizedFinding>& found) {
  return Search(context, found).Run();
}

}  // namespace stepscope
