// Turns the findings and the critical path of a Report into rows for the
// exporters.
#include <stepscope/analysis.h>

#include <string>
#include <vector>

#include "words/labels.h"

namespace stepscope {
namespace {

// Maps a finding's status and its five severities to the three severities that
// exporters draw.
Severity AnnotationSeverity(const Finding& finding) {
  if (finding.status == FindingStatus::kError ||
      finding.severity == FindingSeverity::kCritical) {
    return Severity::kError;
  }
  return finding.status == FindingStatus::kWarning ? Severity::kWarning
                                                   : Severity::kNote;
}

}  // namespace

std::vector<Annotation> ToAnnotations(const Report& report) {
  std::vector<Annotation> rows;
  for (const Finding& finding : report.findings) {
    const std::string gain = GainInWords(report, finding);
    std::string text = finding.evidence;
    if (finding.fix_cpp == finding.fix_python) {
      if (!finding.fix_cpp.empty()) text += " Fix: " + finding.fix_cpp;
    } else {
      if (!finding.fix_cpp.empty()) text += " C++: " + finding.fix_cpp;
      if (!finding.fix_python.empty()) text += " Python: " + finding.fix_python;
    }
    // A row without a span is drawn over the whole recording. Notes do not get
    // such a row, only rows for their examples.
    if (!IsNote(finding)) {
      rows.push_back({.row = "findings",
                      .name = finding.id + (gain.empty() ? "" : ": " + gain),
                      .text = text,
                      .severity = AnnotationSeverity(finding)});
    }
    for (const Example& example : finding.examples) {
      // An empty span means "the whole recording" to the exporters.
      if (example.end_ns <= example.begin_ns) continue;
      rows.push_back({.row = "findings",
                      .name = finding.id,
                      .text = example.what + ". " + text,
                      .begin_ns = example.begin_ns,
                      .end_ns = example.end_ns,
                      .severity = AnnotationSeverity(finding)});
    }
  }
  for (const PathSlice& slice : report.path_slices) {
    rows.push_back({.row = "critical path",
                    .name = CauseInWords(slice.category, report.has_gpu),
                    .text = slice.name,
                    .begin_ns = slice.begin_ns,
                    .end_ns = slice.end_ns});
  }
  return rows;
}

}  // namespace stepscope
