// What a report concludes: which change to make first, or what else to say if
// no rule advises anything. Text and Markdown share these sentences. All
// functions are pure.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

namespace stepscope {

// What to change first. "Apply 1 and 2 together (1 loader worker, 2 intra-op
// threads): predicted 80.3 to 22.0 ms per step, 3.6x (likely 3.1x to 3.9x)." A
// change whose gain has only an upper bound is ranked by that gain:
// "Start with 1 (fp64-compute, at most 30.0 ms). Then ...". Empty without a
// plan.
std::string PlanInWords(const Report& report);
// " (likely 1.6x to 2.0x)", with "roughly" if no outcomes are known; "" if both
// ends would be printed the same.
std::string PlanRangeInWords(const Plan& plan);

// For a report without steps: what its times refer to, and how to get steps,
// unless a finding about the recording comes first.
std::string NoStepsInWords(const Report& report);
// True if a finding says that there are no steps, and what to do about it.
bool FindingSaysNoSteps(const Report& report);

// The evidence of `finding` where the losses of the report were printed before
// it, so that each is said once.
std::string EvidenceBesideLosses(const Report& report, const Finding& finding);

// The sorted ids of the rules that ran and found nothing: those in
// Report::clean, and those in CauseAnswer::looked.
std::vector<std::string> RulesWithoutFinding(const Report& report);

// One sentence for a report without advice: healthy, nothing found in a step
// that hardly computes, or no verdict (incomplete recording, no data, or noise
// that exceeds the gains).
std::string VerdictInWords(const Report& report);

// Notes that gain at least 3 % of the step, largest gain first. Empty where
// step times vary by at most 5 %.
std::vector<const Finding*> HeldBack(const Report& report);
// One sentence about the notes of HeldBack(); empty if there are none.
std::string HeldBackInWords(const Report& report);

// One sentence about the rules that were skipped because the recording has no
// sizes of tensors, with how to record them; empty if it has sizes.
std::string MissingSizesInWords(const Report& report);

// The causes that take much of the step and that no advice answers, one line
// each: "loading data 40.1 ms (31 %): the rules ... found nothing to change".
std::vector<std::string> UnansweredInWords(const Report& report);

}  // namespace stepscope
