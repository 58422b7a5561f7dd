// job_traces FOLDER RANKS EVENTS DIGESTS: writes files of a simulated
// data-parallel job for fleet.py.
//
//   FOLDER/rank0.json to rank7.json   traces of the first eight of RANKS ranks,
//                                     about EVENTS events each
//   FOLDER/rank0.pb, ...              digests of DIGESTS ranks of a larger job;
//                                     rank r behaves like rank r % 8
#include <absl/strings/str_replace.h>
#include <stepscope/export.h>
#include <stepscope/rank_digest.h>
#include <stepscope/ranks.h>
#include <stepscope/trace_builder.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/program_simulator.h"
#include "support/trace_copy.h"

namespace stepscope {
namespace {

constexpr int kSimulated = 8;

// A step of about 10,000 events and 40 all-reduces. Ranks 3 and 5 need longer
// for a batch, so the report has something to find.
constexpr char kJob[] = R"(
  gpu A100 pcie=24 pageable=5 cc=8.0 sms=108 bandwidth=2039
  cores 16
  ranks 8 network=200
  steps STEPS warmup=2
  define back { node AddmmBackward0 5us {
    op aten::mm 7us { kernel ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn 20us }
    op aten::mm 7us { kernel ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt 21us }
  } }
  step {
    range loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ {
      host 1ms
      rank 3 { host 4ms }
      rank 5 { host 2ms }
    }
    range phase forward { repeat 800 {
      op aten::linear 6us grad { op aten::addmm 7us {
        kernel ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn 20us } }
    } }
    backward { repeat 40 {
      repeat 19 { do back; accumulate 3us { op aten::detach 1us } }
      do back
      accumulate 3us { op aten::detach 1us; collective all_reduce 5MB }
    } }
    join
    range optimizer "Optimizer.step#AdamW.step" {
      op aten::_fused_adamw_ 90us {
        kernel "void at::native::multi_tensor_apply_kernel<FusedAdam>" 300us }
    }
  }
)";

int64_t EventsOf(const Trace& trace) {
  return static_cast<int64_t>(trace.ops().size() + trace.ranges().size() +
                              trace.runtime_calls().size() +
                              trace.kernels().size() +
                              trace.communications().size());
}

ProgramRun RunJob(int64_t steps) {
  const std::string text =
      absl::StrReplaceAll(kJob, {{"STEPS", std::to_string(steps)}});
  absl::StatusOr<ProgramRun> run = RunProgram(text, {});
  if (run.ok()) return *std::move(run);
  std::fprintf(stderr, "%s\n", std::string(run.status().message()).c_str());
  std::exit(1);
}

void Check(const absl::Status& written) {
  if (written.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(written.message()).c_str());
  std::exit(1);
}

void WriteRank(const Trace& trace, int ranks, const std::string& path) {
  TraceBuilder builder;
  AddAll(trace, builder);
  builder.run().world_size = ranks;
  Check(WriteTrace(builder.Build(), {}, Format::kChromeKineto, path));
}

void WriteDigests(const std::vector<Trace>& traces, int ranks,
                  const std::string& prefix) {
  std::vector<RankDigest> digests;
  for (const Trace& trace : traces) digests.push_back(DigestRank(trace));
  for (int rank = 0; rank < ranks; ++rank) {
    RankDigest& digest = digests[rank % kSimulated];
    digest.report.run.rank = rank;
    digest.report.run.world_size = ranks;
    Check(WriteText(SerializeDigest(digest),
                    prefix + std::to_string(rank) + ".pb"));
  }
}

}  // namespace
}  // namespace stepscope

int main(int argc, char** argv) {
  using namespace stepscope;
  if (argc != 5) {
    std::fprintf(stderr, "job_traces FOLDER RANKS EVENTS DIGESTS\n");
    return 2;
  }
  const int64_t of_two = EventsOf(RunJob(2).ranks[0]);
  const int64_t steps = std::max<int64_t>(2, std::atoll(argv[3]) * 2 / of_two);
  const ProgramRun run = RunJob(steps);
  const std::string prefix = std::string(argv[1]) + "/rank";
  for (int rank = 0; rank < kSimulated; ++rank) {
    WriteRank(run.ranks[rank], std::atoi(argv[2]),
              prefix + std::to_string(rank) + ".json");
  }
  WriteDigests(run.ranks, std::atoi(argv[4]), prefix);
  std::printf("%lld events a rank, %lld steps\n",
              static_cast<long long>(EventsOf(run.ranks[0])),
              static_cast<long long>(steps));
  return 0;
}
