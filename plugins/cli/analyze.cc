#include "analyze.h"

#include <absl/status/status.h>
#include <stepscope/analysis.h>
#include <stepscope/logdir.h>
#include <stepscope/ranks.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "complain.h"
#include "digest.h"
#include "output.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// One trace to analyse, and what belongs to it in its log directory.
struct Source {
  std::string path;
  std::string advice;   // the advice written beside it; may be empty
  std::string log_dir;  // as given; empty if it was no log directory
};

struct Result {
  Source source;
  RankDigest digest;
  const Report& report() const { return digest.report; }
};

std::string Text(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

// ".../trace/rank3.json.gz" -> ".../advice/rank3.json", if it is there.
std::string AdviceOf(const fs::path& trace) {
  if (trace.parent_path().filename() != "trace") return "";
  const std::string name = trace.filename().string();
  const fs::path advice = trace.parent_path().parent_path() / "advice" /
                          (name.substr(0, name.find(".json")) + ".json");
  std::error_code error;
  return fs::exists(advice, error) ? advice.string() : "";
}

// Every trace that the paths mean, each once.
std::vector<Source> FindSources(const Arguments& arguments) {
  std::vector<Source> sources;
  std::set<std::string> seen;
  for (const std::string& path : arguments.paths) {
    absl::StatusOr<ResolvedRun> run =
        ResolvePath(path, arguments.run, arguments.cycle);
    if (!run.ok()) {
      Complain(run.status());
      continue;
    }
    for (const std::string& note : run->passed_over)
      Complain("passed over: " + note);
    std::error_code error;
    const bool is_log_dir =
        fs::is_directory(fs::path(path) / "stepscope", error);
    for (const std::string& file : run->trace_files) {
      const fs::path canonical = fs::weakly_canonical(file, error);
      if (!seen.insert(error ? file : canonical.string()).second) continue;
      sources.push_back({file, AdviceOf(file), is_log_dir ? path : ""});
    }
  }
  return sources;
}

std::string RankName(const Result& result) {
  const RunInfo& run = result.report().run;
  if (run.rank < 0) return result.source.path;
  std::string name = "rank " + std::to_string(run.rank);
  if (run.world_size > 0) name += "/" + std::to_string(run.world_size);
  return name;
}

// What to call each of `results`: by rank, or by file where ranks do not tell
// them apart.
std::vector<std::string> NamesOf(const std::vector<Result>& results) {
  std::set<int32_t> ranks;
  for (const Result& result : results) ranks.insert(result.report().run.rank);
  const bool by_rank = ranks.size() == results.size() && !ranks.contains(-1);
  std::vector<std::string> names;
  for (const Result& result : results) {
    names.push_back(by_rank ? RankName(result) : result.source.path);
  }
  return names;
}

// One line for a rank that is not printed in full.
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

TextOptions OptionsFor(const Result& result, const Arguments& arguments,
                       const Terminal& terminal) {
  TextOptions options;
  options.color = terminal.color && arguments.output.empty();
  options.width = terminal.width;
  options.verbose = arguments.verbose;
  options.details_path = result.source.advice;
  if (!result.source.log_dir.empty())
    options.view_command = "tensorboard --logdir " + result.source.log_dir;
  return options;
}

// Rank 0 (or the first there is) in full and a line for each other.
std::string TextOfRanks(const std::vector<Result>& results,
                        const std::string& why_not, const Arguments& arguments,
                        const Terminal& terminal) {
  size_t full = 0;
  for (size_t i = results.size(); i-- > 0;) {
    if (results[i].report().run.rank == 0) full = i;
  }
  const std::vector<std::string> names = NamesOf(results);
  std::string text = std::to_string(results.size()) +
                     " traces, each analysed by itself: " + why_not + "\n";
  if (!arguments.verbose) {
    text += names[full] +
            " in full, the others in a line each; --verbose prints all\n";
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (i != full && !arguments.verbose) continue;
    text += "\n== " + names[i] + " ==\n\n";
    text += ToText(results[i].report(),
                   OptionsFor(results[i], arguments, terminal));
  }
  if (arguments.verbose) return text;
  text += "\n";
  for (size_t i = 0; i < results.size(); ++i) {
    if (i != full) text += Summary(names[i], results[i].report()) + "\n";
  }
  return text;
}

std::string JsonOfRanks(const std::vector<Result>& results) {
  std::string text = "[\n";
  for (size_t i = 0; i < results.size(); ++i) {
    std::string object = ToJson(results[i].report());
    while (!object.empty() && object.back() == '\n') object.pop_back();
    text += (i == 0 ? "" : ",\n") + object;
  }
  return text + "\n]\n";
}

std::string MarkdownOfRanks(const std::vector<Result>& results) {
  const std::vector<std::string> names = NamesOf(results);
  std::string text;
  for (size_t i = 0; i < results.size(); ++i) {
    text += "# " + names[i] + "\n\n" + ToMarkdown(results[i].report()) + "\n";
  }
  return text;
}

// All ranks in one report.
std::string RenderRun(const Report& run, const std::vector<Result>& results,
                      const Arguments& arguments, const Terminal& terminal) {
  switch (arguments.format) {
    case ReportFormat::kJson:
      return ToJson(run);
    case ReportFormat::kMarkdown:
      return ToMarkdown(run);
    case ReportFormat::kText:
      break;
  }
  TextOptions options = OptionsFor(results[0], arguments, terminal);
  options.details_path = "";
  return ToText(run, options) + "one rank in full: stepscope analyze --rank " +
         std::to_string(run.ranks.rows[0].rank) + " ...\n";
}

std::string Render(const std::vector<Result>& results,
                   const Arguments& arguments) {
  const Terminal terminal =
      arguments.output.empty() ? TerminalOfStdout() : Terminal();
  std::string why_not;
  if (results.size() > 1) {
    std::vector<RankDigest> digests;
    for (const Result& result : results) digests.push_back(result.digest);
    const Report run = AnalyzeRanks(digests);
    if (run.ranks.why_not.empty()) {
      return RenderRun(run, results, arguments, terminal);
    }
    why_not = run.ranks.why_not;
  }
  const bool several = results.size() > 1;
  switch (arguments.format) {
    case ReportFormat::kJson:
      return several ? JsonOfRanks(results) : ToJson(results[0].report());
    case ReportFormat::kMarkdown:
      return several ? MarkdownOfRanks(results)
                     : ToMarkdown(results[0].report());
    case ReportFormat::kText:
      break;
  }
  if (several) return TextOfRanks(results, why_not, arguments, terminal);
  return ToText(results[0].report(),
                OptionsFor(results[0], arguments, terminal));
}

std::vector<Result> ReadAll(const Arguments& arguments) {
  std::vector<Source> sources = FindSources(arguments);
  std::vector<std::string> paths;
  for (const Source& source : sources) paths.push_back(source.path);
  std::vector<absl::StatusOr<RankDigest>> digests = DigestAll(paths);
  std::vector<Result> results;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!digests[i].ok()) {
      Complain(digests[i].status());
      continue;
    }
    for (const Loss& loss : digests[i]->report.losses) {
      if (loss.name == "truncated-file")
        Complain(sources[i].path + ": " + loss.detail);
    }
    results.push_back({std::move(sources[i]), *std::move(digests[i])});
  }
  return results;
}

// Leaves the one rank that was asked for.
bool ChooseRank(int32_t rank, std::vector<Result>& results) {
  std::string there;
  for (const Result& result : results) {
    if (result.report().run.rank == rank) continue;
    there +=
        (there.empty() ? "" : ", ") + std::to_string(result.report().run.rank);
  }
  std::erase_if(results, [&](const Result& result) {
    return result.report().run.rank != rank;
  });
  if (!results.empty()) return true;
  Complain("no trace is of rank " + std::to_string(rank) +
           (there.empty() ? std::string() : "; there are ranks " + there));
  return false;
}

}  // namespace

int RunAnalyze(const Arguments& arguments) {
  std::vector<Result> results = ReadAll(arguments);
  if (results.empty()) return 1;
  if (arguments.rank >= 0 && !ChooseRank(arguments.rank, results)) return 1;
  const absl::Status written =
      WriteOut(Render(results, arguments), arguments.output);
  if (written.ok()) return 0;
  Complain(written);
  return 1;
}

}  // namespace stepscope
