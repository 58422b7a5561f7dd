// Ranking: the severity and the order of findings, and which of them are
// superseded by others.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// True for the rules that ask whether the recording can be trusted.
bool IsAboutRecording(std::string_view rule);

// True if finding `a` comes before `b`, both of one group: by severity, then by
// the likely gain, weighted by confidence.
bool IsMoreUrgent(const Finding& a, const Finding& b);

// The severity of a gain of `share` of the step, 0 to 1.
FindingSeverity SeverityOfShare(double share);

// The group of a finding, in the order of a report: 0 findings about the
// recording, 1 those with a severity above note, 2 notes whose status is not
// ok, 3 other notes.
int RankGroup(const Finding& finding);

// True for a hint that is listed after ordinary findings: a larger batch, which
// changes the training result, and CUDA graphs for a step that must change
// before it can be captured.
bool ComesLater(const SizedFinding& sized);

// Sorts findings that Rank() has ranked.
void SortByRank(std::vector<SizedFinding>& found);

// Sets severities, removes gains if the recording is incomplete, and drops
// findings whose time is counted under another finding, adding "id (by id)" to
// `superseded`. Sorts: findings about the recording, then by severity and gain,
// then those without a gain, then notes.
void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded);

}  // namespace stepscope
