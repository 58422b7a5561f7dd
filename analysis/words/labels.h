// The words of a report: names of enumerators and causes, and sentences about
// gains, the plan and the verdict. Text and Markdown share them, and the
// findings' evidence uses the same names. All functions are pure.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// Enumerators as JSON writes them: "ok", "critical", "proven", "predicted".
const char* StatusName(FindingStatus status);
const char* SeverityName(FindingSeverity severity);
const char* SeverityName(Severity severity);
const char* ConfidenceName(Confidence confidence);
const char* GainName(GainKind kind);

// A key of time_split_ms in words: "data" is "loading data". Unknown keys are
// returned as they are.
std::string CauseInWords(std::string_view key, bool has_gpu);

// "CPU only, 2 cores", "1 of 4 x NVIDIA H200".
std::string MachineInWords(const Report& report);
// "rank 0 of 8"; empty for a single rank, or if the rank is unknown.
std::string RankInWords(const RunInfo& run);

// The step in ms that the gain of `finding` refers to.
double BaselineMs(const Report& report, const Finding& finding);

// "predicted gain 41.0 ms (likely 36.0 to 44.0): 80.3 to 39.3 ms per step,
// 2.0x", "gain at most 41.0 ms per step (of 80.3 ms)", or "" without a gain.
std::string GainInWords(const Report& report, const Finding& finding);
// "Apply 1 and 2 together (1 loader worker, 2 intra-op threads): predicted 80.3
// to 22.0 ms per step, 3.6x (likely 3.1x to 3.9x)." Empty without a plan.
std::string PlanInWords(const Report& report);

// One sentence for a report without advice: healthy, nothing found in a step
// that hardly computes, or no verdict (incomplete recording, no data, or noise
// that exceeds the gains).
std::string VerdictInWords(const Report& report);

// Notes that would be advice if step times varied less, largest gain first.
// Empty where step times vary by at most 5 %.
std::vector<const Finding*> HeldBack(const Report& report);

// True for findings that only --verbose shows: correct, but without a gain here
// or too small to report.
bool IsNote(const Finding& finding);

// The number printed before a finding, from 1; 0 for notes and for findings
// about the recording itself. `finding` must be an element of report.findings.
int NumberOf(const Report& report, const Finding& finding);

}  // namespace stepscope
