// Analyze: turns a Trace into a Report, and prints Reports. Where the Trace
// came from does not matter: a live recording and the file written from it
// give the same Report.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Finds the steps of `trace`, attributes their time to causes, runs every rule
// and predicts the gain of what they propose.
//
// Never fails. A rule that lacks data, or that fails, is listed in
// Report::skipped; what is missing from the recording is in Report::losses.
// Threads: any number of calls may share one const Trace.
Report Analyze(const Trace& trace);

// How ToText() lays out a report.
struct TextOptions {
  bool color = false;  // use ANSI colours
  // Also print notes, examples, clean, skipped and superseded rules, and the
  // critical path.
  bool verbose = false;
  int width = 100;                // columns to wrap at; at least 40
  std::string details_path = {};  // printed as "details: ..." unless empty
  std::string view_command = {};  // printed as "view: ..." unless empty
};

// The report for a terminal. Control characters in names are replaced by
// blanks. Never fails; any thread.
std::string ToText(const Report& report, const TextOptions& options);

// Only the lines about the whole run; empty if too few steps were timed. Never
// fails; any thread.
std::string ToText(const WholeRun& run, const TextOptions& options);

// Returns one line about a run that is still going on, after `steps` steps: the
// usual step time, and the share of the time that slow steps take. Empty if too
// few steps were timed. Never fails; any thread.
std::string StatusText(const WholeRun& run, int64_t steps);

// Says why step `number` of a recording was slow: names the range or cause that
// explains at least half of its time beyond the mean of the other steps, or
// says that there is none. Empty if the step took less than 1.2 times that
// mean. Never fails; any thread.
std::string SlowStepInWords(const Trace& trace, const Report& report,
                            int64_t number);

// The report as one JSON object with a trailing newline, always valid UTF-8.
// The schema is docs/json.md, version 2. Never fails; any thread.
std::string ToJson(const Report& report);

// The report as Markdown, for issues and job summaries. Names are escaped.
// Never fails; any thread.
std::string ToMarkdown(const Report& report);

// Returns findings and the critical path as rows that the exporters draw next
// to the events. A finding without a span concerns the whole recording: its
// annotation has begin_ns == end_ns. Never fails; any thread.
std::vector<Annotation> ToAnnotations(const Report& report);

}  // namespace stepscope
