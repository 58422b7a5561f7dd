// The words of a report: names of enumerators and causes, and sentences about
// gains. Text and Markdown share them, and the findings' evidence uses the same
// names. All functions are pure.
#pragma once

#include <stepscope/memory_peaks.h>
#include <stepscope/report.h>

#include <string>
#include <string_view>

namespace stepscope {

// Enumerators as JSON writes them: "ok", "critical", "proven", "predicted".
const char* StatusName(FindingStatus status);
const char* SeverityName(FindingSeverity severity);
const char* SeverityName(Severity severity);
const char* ConfidenceName(Confidence confidence);
const char* GainName(GainKind kind);
// "pageable -> device"
std::string CopyInWords(const Copy& copy);
// "cpu", "gpu 0"
std::string MemoryDeviceName(const MemoryPeak& peak);

// A key of time_split_ms in words: "data" is "loading data". Unknown keys are
// returned as they are.
std::string CauseInWords(std::string_view key, bool has_gpu);

// "CPU only, 2 cores", "no GPU work recorded", "1 of 4 x NVIDIA H200".
std::string MachineInWords(const Report& report);
// "rank 0 of 8"; empty for a single rank, or if the rank is unknown.
std::string RankInWords(const RunInfo& run);

// An example's place after a time: "in aten::copy_", but "at train.py:12".
std::string PlaceInWords(std::string_view what);

// A loss as a sentence: "12 events were dropped."
std::string LossInWords(const Loss& loss);
// How capture-incomplete says that there are no steps. Where it does, the
// report does not say so again.
inline constexpr char kNoStepMarks[] = "The trace has no step marks";

// True if the rule was skipped because the recording has no sizes of tensors.
bool LacksSizes(const SkippedRule& rule);

// The step in ms that gains refer to: the mean one, without what recording
// costs where that is known.
double GainStepMs(const StepStats& steps);
// The step in ms that the gain of `finding` refers to.
double BaselineMs(const Report& report, const Finding& finding);
// Noise of the mean step in ms: two standard errors.
double NoiseOfMeanMs(const StepStats& steps);
// The gain in ms by which a finding is weighted: for a bound, half of it
// counts.
double LikelyMs(const Finding& finding);

// "predicted gain 41.0 ms (likely 36.0 to 44.0): 80.3 to 39.3 ms per step,
// 2.0x", with "roughly 36.0 to 44.0" if no outcomes are known. For a bound,
// "gain at most 41.0 ms per step (of 80.3 ms)", with ", likely at least 24.0
// ms" if outcomes are known; "" without a gain.
std::string GainInWords(const Report& report, const Finding& finding);
// The gain alone: "predicted 41.0 ms", "at most 41.0 ms"; "" without a gain.
std::string GainInShort(const Finding& finding);

// What a finding says about one that it supersedes: "launch-bound, predicted
// 3.20 ms by itself".
std::string AlsoInWords(const Finding& muted);
// The entry in Report::superseded: "launch-bound (by host-sync)".
std::string SupersededBy(std::string_view id, std::string_view by);

// True if `finding` says that the recording is incomplete: then no gain counts.
bool ShowsDamage(const Finding& finding);
// True for findings that only --verbose shows: correct, but without a gain here
// or one too small to report or to tell from noise.
bool IsNote(const Finding& finding);

// True for findings above note, and for the notes of a plan: these gain only
// after other changes.
bool IsAdvice(const Finding& finding);
// True for advice that rests on a fact that the recording lacks: whether cores
// are idle, where neither cores nor threads were recorded.
bool IsQuestion(const Finding& finding);

// The number printed before a finding that is advice, from 1; 0 for others.
// `finding` must be an element of report.findings.
int NumberOf(const Report& report, const Finding& finding);

}  // namespace stepscope
