// The words of a report's enumerations and causes, as files write them and as
// people read them.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

const char* StatusName(FindingStatus status);
const char* SeverityName(FindingSeverity severity);
const char* SeverityName(Severity severity);
const char* ConfidenceName(Confidence confidence);
const char* GainName(GainKind kind);

// What a key of time_split_ms means to a reader: "waiting for data".
std::string CauseInWords(std::string_view key, bool has_gpu);

// "3 steps", "CPU, 2 cores", "1 x NVIDIA H200"
std::string MachineInWords(const Report& report);
// "rank 0 of 8"; empty if there is only one, or the Trace did not say.
std::string RankInWords(const RunInfo& run);

// "-41.0 ms per step, 80.3 to 39.3 ms (2.0x; likely -36 to -44)",
// "at most -41.0 ms per step", or "" without a gain.
std::string GainInWords(const Report& report, const Finding& finding);
// "Do 1 and 2 together: 80 to 22 ms per step (3.6x, likely 3.1x to 3.9x)."
// Empty without a plan.
std::string PlanInWords(const Report& report);

// What to say where there is nothing to advise. A step that mostly computes is
// healthy; of another one it is only known that the rules there are found
// nothing; a damaged recording shows nothing either way.
std::string VerdictInWords(const Report& report);

// Notes that would be advice if the steps varied less, the largest first.
std::vector<const Finding*> HeldBack(const Report& report);

// True for the findings that are told last, if at all: right, and too small to
// matter, or nothing to win.
bool IsNote(const Finding& finding);

// The number that people read before a finding, from 1; 0 for notes and for
// what is said of the recording itself.
int NumberOf(const Report& report, const Finding& finding);

}  // namespace stepscope
