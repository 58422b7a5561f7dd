// Analyze: Trace in, Report out. It never knows where the Trace came from: a
// live window and the file written from it give the same Report.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

// Never fails: what cannot be told is in Report::skipped, and a rule
// that fails is listed there too. Thread-safe for one const Trace.
Report Analyze(const Trace& trace);

struct TextOptions {
  bool color = false;  // ANSI colours
  bool verbose =
      false;  // notes, every example, rules that were clean or could not look
  int width = 100;                // columns
  std::string details_path = {};  // printed as "details: ..." when not empty
  std::string view_command = {};  // printed as "view: ..." when not empty
};

std::string ToText(const Report& report, const TextOptions& options);
// The documented schema of analysis/README.md ("version": 2). Valid UTF-8, one
// object, trailing newline.
std::string ToJson(const Report& report);
std::string ToMarkdown(const Report& report);

// Findings as rows for the exporters.
std::vector<Annotation> ToAnnotations(const Report& report);

}  // namespace stepscope
