#include "analyze_output.h"

#include <stepscope/analysis.h>
#include <stepscope/printable.h>

#include <cstdio>
#include <set>
#include <utility>

#include "output.h"
#include "report/markdown_escape.h"

namespace stepscope {
namespace {

std::string Text(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string RankName(const AnalysedTrace& result) {
  const RunInfo& run = result.report().run;
  if (run.rank < 0) return result.path;
  std::string name = "rank " + std::to_string(run.rank);
  if (run.world_size > 0) name += "/" + std::to_string(run.world_size);
  return name;
}

// Returns a name for each of `results`: its rank, or its file if ranks do not
// distinguish them or are those of several jobs.
std::vector<std::string> NamesOf(const std::vector<AnalysedTrace>& results,
                                 bool different_jobs) {
  std::set<int32_t> ranks;
  for (const AnalysedTrace& result : results)
    ranks.insert(result.report().run.rank);
  const bool by_rank =
      !different_jobs && ranks.size() == results.size() && !ranks.contains(-1);
  std::vector<std::string> names;
  names.reserve(results.size());
  for (const AnalysedTrace& result : results) {
    names.push_back(by_rank ? RankName(result) : result.path);
  }
  return names;
}

// Returns one line for a rank that is not printed in full. Full reports of all
// ranks would hide what differs between them.
std::string Summary(const std::string& name, const Report& report) {
  std::string line = name + "  ";
  if (report.steps.count > 0) {
    line += std::to_string(report.steps.count) +
            (report.steps.count == 1 ? " step" : " steps") + " of " +
            Text(report.steps.mean_ms, 1) + " ms";
  } else {
    line += "no steps";
  }
  for (const Finding& finding : report.findings) {
    if (finding.gain_kind == GainKind::kNone ||
        finding.severity == FindingSeverity::kNote) {
      continue;
    }
    line += "; first: " + finding.id + ", " +
            (finding.gain_kind == GainKind::kBound ? "at most " : "") +
            Text(finding.gain.expected_ms, 1) + " ms per step";
    break;
  }
  if (!report.losses.empty()) {
    line += "; " + std::to_string(report.losses.size()) +
            (report.losses.size() == 1 ? " loss" : " losses");
  }
  return line;
}

TextOptions OptionsFor(const AnalysedTrace& result,
                       const AnalysisOutput& output, const Terminal& terminal) {
  TextOptions options;
  options.color = terminal.color && output.to_stdout;
  options.width = terminal.width;
  options.verbose = output.verbose;
  options.details_path = result.advice;
  if (!result.log_dir.empty())
    options.view_command = "tensorboard --logdir " + result.log_dir;
  return options;
}

// Prints rank 0 (or the first trace) in full, and one line for each of the
// others.
std::string TextOfRanks(const std::vector<AnalysedTrace>& results,
                        const RankComparison& ranks,
                        const AnalysisOutput& output,
                        const Terminal& terminal) {
  // Goes backwards, so that the first of several traces of rank 0 is used.
  size_t full = 0;
  for (size_t i = results.size(); i-- > 0;) {
    if (results[i].report().run.rank == 0) full = i;
  }
  const std::vector<std::string> names = NamesOf(results, ranks.different_jobs);
  std::string text = std::to_string(results.size()) +
                     " traces, each analysed on its own: " + ranks.why_not +
                     "\n";
  if (!output.verbose) {
    text += "full report of " + names[full] +
            "; the others have one line each (--verbose prints all in full)\n";
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (i != full && !output.verbose) continue;
    text += "\n== " + names[i] + " ==\n\n";
    text +=
        ToText(results[i].report(), OptionsFor(results[i], output, terminal));
  }
  if (output.verbose) return text;
  text += "\n";
  for (size_t i = 0; i < results.size(); ++i) {
    if (i != full) text += Summary(names[i], results[i].report()) + "\n";
  }
  return text;
}

std::string JsonOfRanks(const std::vector<AnalysedTrace>& results) {
  std::string text = "[\n";
  for (size_t i = 0; i < results.size(); ++i) {
    std::string object = ToJson(results[i].report());
    // Drop the line end of the object, so that the comma directly follows its
    // bracket.
    while (!object.empty() && object.back() == '\n') object.pop_back();
    text += (i == 0 ? "" : ",\n") + object;
  }
  return text + "\n]\n";
}

std::string MarkdownOfRanks(const std::vector<AnalysedTrace>& results,
                            const RankComparison& ranks) {
  const std::vector<std::string> names = NamesOf(results, ranks.different_jobs);
  std::string text;
  for (size_t i = 0; i < results.size(); ++i) {
    text += "# " + MarkdownText(names[i]) + "\n\n" +
            ToMarkdown(results[i].report()) + "\n";
  }
  return text;
}

Report RunOf(const std::vector<AnalysedTrace>& results) {
  std::vector<RankDigest> digests;
  digests.reserve(results.size());
  for (const AnalysedTrace& result : results) digests.push_back(result.digest);
  return AnalyzeRanks(digests);
}

// True if all traces are different ranks of a job of one size, even if they
// cannot be compared because no collective was recorded.
bool AreRanks(const std::vector<AnalysedTrace>& results) {
  std::set<int32_t> ranks;
  const int32_t size = results[0].report().run.world_size;
  for (const AnalysedTrace& result : results) {
    const RunInfo& run = result.report().run;
    if (run.rank < 0 || run.world_size != size ||
        !ranks.insert(run.rank).second) {
      return false;
    }
  }
  return true;
}

// Returns one report of all ranks.
std::string RenderRun(const Report& run,
                      const std::vector<AnalysedTrace>& results,
                      const AnalysisOutput& output, const Terminal& terminal) {
  switch (output.format) {
    case ReportFormat::kJson:
      return ToJson(run);
    case ReportFormat::kMarkdown:
      return ToMarkdown(run);
    case ReportFormat::kHtml:
      return ToHtml(run, output.page);
    case ReportFormat::kText:
      break;
  }
  TextOptions options = OptionsFor(results[0], output, terminal);
  // The details beside the first trace are only about that rank.
  options.details_path = "";
  return ToText(run, options) +
         "full report of one rank: stepscope analyze --rank " +
         std::to_string(run.ranks.rows[0].rank) + " ...\n";
}

}  // namespace

std::vector<Report> ReportsOf(const std::vector<AnalysedTrace>& results) {
  // A gate must judge the report that is printed: one for the whole run, or one
  // for each trace.
  if (results.size() > 1) {
    Report run = RunOf(results);
    if (run.ranks.why_not.empty()) return {std::move(run)};
  }
  std::vector<Report> reports;
  reports.reserve(results.size());
  for (const AnalysedTrace& result : results)
    reports.push_back(result.report());
  return reports;
}

// Traces that are the ranks of one run become one report. Otherwise each trace
// has its own report.
absl::StatusOr<std::string> AnalysisText(const AnalysedTraces& traces,
                                         const AnalysisOutput& output) {
  const std::vector<AnalysedTrace>& results = traces.read;
  const Terminal terminal = output.to_stdout ? TerminalOfStdout() : Terminal();
  RankComparison ranks;
  if (results.size() > 1) {
    Report run = RunOf(results);
    // Ranks of one job share a page even if they cannot be compared, because a
    // page cannot show several reports.
    if (run.ranks.why_not.empty() ||
        (output.format == ReportFormat::kHtml && AreRanks(results) &&
         !run.ranks.different_jobs)) {
      NameMissingRanks(traces.missing, run);
      return RenderRun(run, results, output, terminal);
    }
    ranks = std::move(run.ranks);
  }
  const bool several = results.size() > 1;
  Report alone = results[0].report();
  if (!several) NameMissingRanks(traces.missing, alone);
  switch (output.format) {
    case ReportFormat::kJson:
      return several ? JsonOfRanks(results) : ToJson(alone);
    case ReportFormat::kMarkdown:
      return several ? MarkdownOfRanks(results, ranks) : ToMarkdown(alone);
    case ReportFormat::kHtml:
      if (!several) return ToHtml(alone, output.page);
      return absl::InvalidArgumentError(
          "one page cannot show traces that are not the ranks of one job (" +
          ranks.why_not +
          "); make a page of each, or one of two to compare them");
    case ReportFormat::kText:
      break;
  }
  if (several) {
    return PrintableLines(TextOfRanks(results, ranks, output, terminal),
                          terminal.color && output.to_stdout);
  }
  return ToText(alone, OptionsFor(results[0], output, terminal));
}

}  // namespace stepscope
