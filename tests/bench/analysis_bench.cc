// Measures the speed of the analysis (all rules, replay, plan) of one rank and
// of many. Prints one line per row and writes one JSON object per line. Exits
// with 3 if a bound is missed.
//   analysis_bench [--out FILE] [--scratch DIR] [--events MILLIONS]
//       [--ranks N] [--hta FILE] [--per-rule] TRACE...
// TRACE: files of torch.profiler. The first file is also lengthened to --events
// events. The last file is the rank that --ranks repeats.
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "analysis/context/analysis_context.h"
#include "analysis/context/rule.h"
#include "analysis/drawing/page_details.h"
#include "analysis/engine/report_of.h"
#include "analysis/engine/rule_families.h"
#include "hta_times.h"
#include "measure.h"
#include "plugins/cli/digest.h"
#include "support/trace_copy.h"

namespace stepscope::bench {
namespace {

namespace fs = std::filesystem;

struct BenchWords {
  std::string out = "analysis.jsonl";
  std::string scratch = ".";
  double millions = 2;
  int ranks = 64;
  bool per_rule = false;
  HtaTimes hta;
  std::vector<std::string> traces;
};

// Prints each rule's share of the whole, the most expensive rule first.
void PrintRules(const std::string& name, const Trace& trace) {
  struct Row {
    double seconds;
    std::string id;
  };
  std::vector<Row> rows;
  std::set<std::string> silent;
  const double whole = Seconds([&] {
    for (const SkippedRule& entry : Analyze(trace).skipped)
      silent.insert(entry.id);
  });
  const AnalysisContext* measured = nullptr;
  rows.push_back({Seconds([&] { measured = new AnalysisContext(trace); }),
                  "(what all share)"});
  for (std::span<const Rule> family : RuleFamilies()) {
    for (const Rule& rule : family) {
      if (silent.contains(rule.id)) continue;
      rows.push_back({Seconds([&] { rule.check(*measured); }), rule.id});
    }
  }
  delete measured;
  std::ranges::sort(rows, std::greater(), &Row::seconds);
  std::printf("  %s: %lld events, %.1f ms; at least 1 %% of it:\n",
              name.c_str(), static_cast<long long>(EventsOf(trace)),
              whole * 1e3);
  for (const Row& row : rows) {
    if (row.seconds < 0.01 * whole) break;
    std::printf("    %-28s %8.2f ms %5.1f %%\n", row.id.c_str(),
                row.seconds * 1e3, 100 * row.seconds / whole);
  }
}

// Adds a row with the most expensive rule's share of the whole.
void AnalysisRow(const std::string& name, const Trace& trace, int rounds,
                 const BenchWords& words, Results& results) {
  std::vector<double> seconds;
  Memory memory;
  for (int round = 0; round < rounds; ++round) {
    memory =
        MemoryOf([&] { seconds.push_back(Seconds([&] { Analyze(trace); })); });
  }
  AddSpeed("analyze_" + name, "M events",
           static_cast<double>(EventsOf(trace)) / kMb, seconds, 2, results);
  results.Add({.name = "memory_" + name,
               .unit = "bytes",
               .ours = memory.peak_bytes,
               .repetitions = 1});
  if (words.per_rule) PrintRules(name, trace);
}

// Adds rows for making a page of an analysed recording: drawings, tables and
// HTML.
void PageRows(const Trace& trace, Results& results) {
  constexpr double kMostSeconds = 0.3;
  constexpr double kMostBytes = 100 * kMb;
  const AnalysisContext context(trace);
  const Report report = ReportOf(context);
  double seconds = 0;
  size_t size = 0;
  const Memory memory = MemoryOf([&] {
    seconds = Seconds(
        [&] { size = ToHtml(report, DrawDetails(context, report)).size(); });
  });
  results.Add({.name = "page_made",
               .unit = "s",
               .ours = seconds,
               .repetitions = 1,
               .bound = kMostSeconds,
               .bound_is_absolute = true});
  results.Add({.name = "page_memory",
               .unit = "bytes",
               .ours = memory.peak_bytes,
               .repetitions = 1,
               .bound = kMostBytes,
               .bound_is_absolute = true});
  results.Add({.name = "page_size",
               .unit = "bytes",
               .ours = static_cast<double>(size),
               .repetitions = 1,
               .bound = 600e3,
               .bound_is_absolute = true});
}

void FileRow(const std::string& path, const BenchWords& words,
             Results& results) {
  const std::string name = ShortName(path);
  const Trace trace = ReadOrFail(path);
  AnalysisRow(name, trace, 7, words, results);
  if (const auto hta = words.hta.Of(name)) {
    // Compares all rules with one table of HTA.
    results.Add({.name = "hta_" + name,
                 .unit = "s",
                 .ours = Seconds([&] { Analyze(trace); }),
                 .peer = hta->temporal_s,
                 .repetitions = 1});
  }
}

// Writes copies of one rank's file, one for each rank.
std::vector<std::string> WriteRanks(const std::string& path,
                                    const BenchWords& words) {
  const Trace one = ReadOrFail(path);
  std::vector<std::string> files;
  for (int rank = 0; rank < words.ranks; ++rank) {
    TraceBuilder builder;
    AddAll(one, builder);
    builder.run().rank = rank;
    builder.run().world_size = words.ranks;
    files.push_back(words.scratch + "/rank" + std::to_string(rank) + ".json");
    const absl::Status written =
        WriteTrace(builder.Build(), {}, Format::kChromeKineto, files.back());
    if (!written.ok()) Fail(std::string(written.message()));
  }
  return files;
}

void RanksRows(const BenchWords& words, Results& results) {
  const std::vector<std::string> files = WriteRanks(words.traces.back(), words);
  std::vector<absl::StatusOr<RankDigest>> digests;
  double together_s = 0, compare_s = 0;
  const Memory memory = MemoryOf([&] {
    together_s = Seconds([&] { digests = DigestAll(files); });
    std::vector<RankDigest> whole;
    for (absl::StatusOr<RankDigest>& digest : digests) {
      if (!digest.ok()) Fail(std::string(digest.status().message()));
      whole.push_back(*std::move(digest));
    }
    compare_s = Seconds([&] { AnalyzeRanks(whole); });
  });
  const double alone_s = Seconds([&] {
    for (const std::string& file : files) DigestRank(ReadOrFail(file));
  });
  const int count = static_cast<int>(files.size());
  results.Add({.name = "ranks_memory",
               .unit = "bytes",
               .ours = memory.peak_bytes,
               .repetitions = 1,
               .bound = 2048 * kMb * 1.048576,
               .bound_is_absolute = true});
  results.Add({.name = "ranks_compare",
               .unit = "s",
               .ours = compare_s,
               .repetitions = 1});
  // Compares two threads with one; the peer is our own code on one thread.
  results.Add({.name = "ranks_read",
               .unit = "s a rank",
               .ours = together_s / count,
               .peer = alone_s / count,
               .repetitions = count,
               .bound = 0.6});
  for (const std::string& file : files) fs::remove(file);
}

BenchWords Parse(int argc, char** argv) {
  BenchWords words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--out") {
      words.out = value();
    } else if (word == "--scratch") {
      words.scratch = value();
    } else if (word == "--events") {
      words.millions = std::atof(value());
    } else if (word == "--ranks") {
      words.ranks = std::atoi(value());
    } else if (word == "--hta") {
      words.hta = HtaTimes(value());
    } else if (word == "--per-rule") {
      words.per_rule = true;
    } else {
      words.traces.push_back(word);
    }
  }
  if (words.traces.empty()) Fail("no traces were given");
  return words;
}

}  // namespace
}  // namespace stepscope::bench

int main(int argc, char** argv) {
  using namespace stepscope::bench;
  const BenchWords words = Parse(argc, argv);
  Results results(words.out);
  for (const std::string& trace : words.traces) FileRow(trace, words, results);
  if (words.millions > 0) {
    const stepscope::Trace longer =
        Lengthened(ReadOrFail(words.traces.front()),
                   static_cast<int64_t>(words.millions * 1e6));
    AnalysisRow("long_loop", longer, 3, words, results);
  }
  PageRows(Lengthened(ReadOrFail(words.traces.front()), 600'000), results);
  if (words.ranks > 0) RanksRows(words, results);
  return results.missed() == 0 ? 0 : 3;
}
