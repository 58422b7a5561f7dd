// Writes seeds of fuzz_rank_digest: make_digest_seeds FOLDER TRACE...
#include <stepscope/rank_digest.h>
#include <stepscope/ranks.h>
#include <stepscope/read.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

int main(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const absl::StatusOr<stepscope::Trace> trace =
        stepscope::ReadTrace(argv[i]);
    if (!trace.ok()) {
      std::fprintf(stderr, "%s\n", trace.status().ToString().c_str());
      return 1;
    }
    stepscope::RankDigest digest = stepscope::DigestRank(*trace);
    digest.report.path_slices.clear();
    const std::string name = std::filesystem::path(argv[i]).filename().string();
    std::ofstream(std::string(argv[1]) + "/" + name.substr(0, name.find('.')),
                  std::ios::binary)
        << stepscope::SerializeDigest(digest);
  }
}
