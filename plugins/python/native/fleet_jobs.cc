#include "fleet_jobs.h"

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <stepscope/analysis.h>
#include <stepscope/logdir.h>
#include <stepscope/rank_digest.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "digest.h"
#include "missing_traces.h"
#include "report/json_text.h"

namespace stepscope {
namespace {

// Reads a digest that a worker's "digest" job made. Errors name the file.
absl::StatusOr<RankDigest> ReadDigest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read " + path);
  absl::StatusOr<RankDigest> digest =
      ParseDigest(std::string(std::istreambuf_iterator<char>(file), {}));
  if (!digest.ok()) {
    return absl::Status(digest.status().code(),
                        path + " " + std::string(digest.status().message()));
  }
  return digest;
}

}  // namespace

absl::StatusOr<std::string> RunTraces(JsonRequest& request) {
  const std::string path = request.Text("path");
  const std::string run = request.Text("run");
  const auto cycle = static_cast<int32_t>(request.Whole("cycle", -1));
  if (absl::Status s = request.Check(); !s.ok()) return s;
  const absl::StatusOr<ResolvedRun> found = ResolvePath(path, run, cycle);
  if (!found.ok()) return found.status();
  JsonText json;
  json.Open('{');
  json.Texts("traces", found->trace_files);
  json.Texts("passed_over", found->passed_over);
  json.Key("unreadable");
  json.Open('{');
  for (const UnreadableFile& file : found->unreadable)
    json.Field(file.path, file.why);
  json.Close('}');
  json.Close('}');
  return json.Take();
}

absl::StatusOr<std::string> RunDigest(JsonRequest& request) {
  const std::string path = request.Text("path");
  const std::string source = request.Text("source");
  if (absl::Status s = request.Check(); !s.ok()) return s;
  // The same call as in "analyze" for all ranks at once, because both ways must
  // lead to the same report.
  absl::StatusOr<RankDigest> digest = std::move(DigestAll({path}).front());
  if (!digest.ok()) return digest.status();
  RunInfo& run = digest->report.run;
  // A worker may have read a local copy of a file in an object store. The
  // report must name the original.
  if (!source.empty()) run.source = source;
  JsonText json;
  json.Open('{');
  json.Field("rank", run.rank);
  json.Field("world_size", run.world_size);
  json.Field("digest", absl::Base64Escape(SerializeDigest(*digest)));
  json.Close('}');
  return json.Take();
}

absl::StatusOr<std::string> RunMerge(JsonRequest& request) {
  const std::vector<std::string> paths = request.Texts("digests");
  const std::string where = request.Text("where");
  std::vector<UnreadableFile> unreadable;
  for (auto& [path, why] : request.Members("unreadable"))
    unreadable.push_back({path, why});
  if (absl::Status s = request.Check(); !s.ok()) return s;
  if (paths.empty()) {
    return absl::InvalidArgumentError("merge needs at least one digest");
  }
  std::vector<RankDigest> digests;
  for (const std::string& path : paths) {
    absl::StatusOr<RankDigest> digest = ReadDigest(path);
    if (!digest.ok()) return digest.status();
    digests.push_back(*std::move(digest));
  }
  // `read` points into the digests, so the missing ranks are determined before
  // a report is moved out of them.
  std::vector<const RunInfo*> read;
  for (const RankDigest& digest : digests) read.push_back(&digest.report.run);
  const auto missing = where.empty() ? std::map<int32_t, std::string>()
                                     : WhyMissing(read, unreadable, where);
  Report report = digests.size() == 1 ? std::move(digests[0].report)
                                      : AnalyzeRanks(digests);
  // For such traces "analyze", in one process, would list them side by side. A
  // merge has to return one report or an error.
  if (!report.ranks.why_not.empty()) {
    return absl::FailedPreconditionError(
        "the traces are not the ranks of one run: " + report.ranks.why_not);
  }
  NameMissingRanks(missing, report);
  return ToJson(report);
}

}  // namespace stepscope
