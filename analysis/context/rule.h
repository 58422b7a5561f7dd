// Rule: one question asked of a Trace. The answer is a finding, "clean" (it ran
// and found nothing), or "skipped" with the reason why it could not run.
//
// How to write one. A rule is a function from an AnalysisContext to a Verdict
// and an entry in the table of its family; a family is one file of rules/, and
// the build lists the families by their file names. The rule decides from the
// recording whether something is wrong, and returns for each problem a Found:
// what it saw, which changes would help, and the most that these can gain. It
// never predicts a gain. The engine does so after the rule has returned: it
// replays the proposed changes, picks one and fills in the gain. A rule may
// prepare other wording for a small gain or for an upper bound; the engine then
// uses that. Thresholds are at the top of the family's file with their source.
#pragma once

#include <stepscope/report.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "timeline/causes.h"

namespace stepscope {

// Wording that a finding gets only in one case (see the members of this type
// below), in addition to what it always says. Empty fields change nothing.
struct Wording {
  std::string evidence = {};    // appended to the finding's, with its space
  std::string assumption = {};  // these replace the finding's
  std::string fix_cpp = {};
  std::string fix_python = {};
  std::optional<Confidence> confidence = {};
};

// One way to make the change that a finding asks for.
struct Alternative {
  Edit edit;             // Edit() is dropped: nothing can be replayed
  Wording wording = {};  // used if this alternative is the one proposed
};

// How the engine chooses among the alternatives of a finding.
enum class Choice : uint8_t {
  // The one with the shortest step. An alternative replaces the best one before
  // it in the list only if its step is shorter by the share `worth`.
  kShortest,
  // Each alternative goes further than the one before. They are followed as
  // long as every one shortens the step by the share `worth` compared with the
  // one before (the first: with the recorded step). The last of those is
  // proposed, the others are dropped. If even the first fails, the rule is
  // clean.
  kLadder,
  // As kShortest, but at most `bound_ns` of the predicted gain is claimed. The
  // rest is idle time of other causes that the change happens to hide.
  kWithinBound,
};

// One problem, as a rule reports it.
struct Found {
  // What the rule saw. The engine overwrites id, reference, severity, gain,
  // gain_kind, baseline_ms and speedup, appends to settings, and may lower
  // confidence and status.
  Finding finding;
  // Ways to make the change, best guess first. Replay sizes the finding by the
  // one it chooses; a plan of several changes may choose another one. Empty
  // where replay does not model the change.
  std::vector<Alternative> alternatives = {};
  // The most that the change can gain, in ns per step. It becomes the gain,
  // marked as an upper bound, where replay cannot size the finding: replay is
  // not valid for this recording, or there are no alternatives. The range of a
  // predicted gain ends there at the latest, if its edit only removes recorded
  // time. 0: no gain is known.
  double bound_ns = 0;
  // The step in ms that the bound refers to; 0: the mean steady step.
  double baseline_ms = 0;
  Choice choice = Choice::kShortest;
  double worth = 0;  // a share of the step, see Choice
  // Without replay there is no way to choose an alternative: where replay is
  // not valid, none is proposed, and `if_bound` says what to do.
  bool needs_replay = false;
  // The change under the best circumstances. If set, the likely range of a
  // predicted gain is from 0 to what this edit gains.
  std::optional<Edit> best_case = {};
  // Edits that are replayed only to learn whether there is a gain at all. Where
  // replay is valid and none of them gains MinReportableGainMs, the gain counts
  // as small (see `if_small`). On a run with a GPU, the bound is at least what
  // the best of them gains.
  std::vector<Edit> trials = {};
  // Used where the gain is an upper bound or unknown.
  Wording if_bound = {};
  // Used where replay predicts a gain below MinReportableGainMs. "{gain}" in
  // its evidence is replaced by the predicted gain. If it has a fix, that fix
  // replaces the change: no gain is claimed and no alternative proposed.
  Wording if_small = {};
  // The finding is about correct results or about risk: it keeps its status
  // even where it gains no time.
  bool regardless = false;
  // The rule has compared the bound with its own error, so the gain is not also
  // compared with the noise of the step. For rules that find the variation of
  // the steps itself.
  bool beyond_noise = false;
  // The highest severity it can have, for advice whose gain no recording shows.
  FindingSeverity at_most = FindingSeverity::kCritical;
  // The finding asks for a fact that the recording lacks. It is listed after
  // all findings that rest on what was recorded.
  bool asks = false;
};

// The answer of a rule. If both are empty, it ran and found nothing.
struct Verdict {
  std::vector<Found> found;
  std::string skipped;     // why it could not run
  bool elsewhere = false;  // as in SkippedRule
};
inline Verdict Clean() { return {}; }
inline Verdict Skip(std::string why) {
  return {.found = {}, .skipped = std::move(why)};
}
// The rule needs another command or machine than this recording is for.
inline Verdict SkipElsewhere(std::string why) {
  return {.found = {}, .skipped = std::move(why), .elsewhere = true};
}
inline Verdict Fire(Found found) {
  Verdict verdict;
  verdict.found.push_back(std::move(found));
  return verdict;
}
// A finding with no known gain.
inline Verdict Fire(Finding finding) {
  return Fire(Found{.finding = std::move(finding)});
}
// A finding whose change replay cannot model: it gains at most `bound_ns` per
// step.
inline Verdict FireBound(Finding finding, double bound_ns) {
  return Fire(Found{.finding = std::move(finding), .bound_ns = bound_ns});
}
// The same; `at_best` removes all that the change could.
inline Verdict FireBound(Finding finding, double bound_ns, Edit at_best) {
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = bound_ns,
                    .trials = {std::move(at_best)}});
}
// A finding with one way to make the change; `bound_ns` as in Found.
inline Verdict Fire(Finding finding, Edit edit, double bound_ns) {
  return Fire(Found{.finding = std::move(finding),
                    .alternatives = {{std::move(edit)}},
                    .bound_ns = bound_ns});
}

// Where a rule applies.
enum class Runs : uint8_t { kAll, kGpuOnly, kCpuOnly };

struct Rule {
  const char* id;        // "sync-data-loading"
  const char* question;  // what it asks, in one sentence
  Runs runs = Runs::kAll;
  bool needs_steps = true;            // skipped where no steps were found
  std::initializer_list<Kind> needs;  // skipped unless these were recorded
  // The causes of the time that the rule's change saves, the main cause first;
  // empty for rules about the recording or about memory, which save no time.
  // For each large cause without a finding, the report names the rules about
  // it.
  std::initializer_list<Cause> causes;
  // Called only where the conditions above hold. An exception that leaves it
  // counts as "skipped" and does not stop other rules.
  Verdict (*check)(const AnalysisContext&);
  const char* reference;  // guide and section
  // For `stepscope explain`: when it fires, with the thresholds and where they
  // come from; what it stays silent about; the change in general words.
  const char* detect = "";
  const char* avoid = "";
  const char* fix_cpp = "";
  const char* fix_python = "";
  // What the change does, in the user's terms ("uploads that do not block"),
  // if its edits only name events. The plan prints it; without it, the id.
  const char* change = "";
  // Called once for all ranks of a run together, with nothing to replay; null
  // for rules about one rank.
  Verdict (*check_ranks)(const RankComparison&) = nullptr;
  // True if check_ranks needs collectives that several ranks share. If false,
  // it also runs without them, on the pipelines alone.
  bool needs_shared_collectives = true;
};

}  // namespace stepscope
