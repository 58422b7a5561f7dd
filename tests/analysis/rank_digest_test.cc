// Tests digests as bytes: AnalyzeRanks() gets the same result from them,
// protobuf can read them, and no bytes break the reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/rank_digest.h>
#include <stepscope/read.h>

#include <random>
#include <string>
#include <vector>

#include "analysis/dlrm_ranks.h"
#include "rank_digest.pb.h"
#include "ranks/digest_fields.h"
#include "ranks/digest_wire.h"
#include "ranks/fnv_hash.h"
#include "support/program_simulator.h"
#include "support/trace_text.h"

namespace stepscope::rank_digest_test {
namespace {

using ::testing::HasSubstr;

// Converts to any type, to count an aggregate's members.
struct Anything {
  template <typename T>
  operator T() const;
};
template <typename T, typename... Given>
consteval size_t Members() {
  if constexpr (requires { T{Given{}..., Anything{}}; }) {
    return Members<T, Given..., Anything>();
  } else {
    return sizeof...(Given);
  }
}
// Counts the fields of a message.
struct FieldCounter {
  size_t count = 0;
  template <typename T>
  constexpr void operator()(int, const T&) {
    ++count;
  }
  template <typename T>
  constexpr void OneOf(int, const T&) {
    ++count;
  }
  constexpr void Fixed64(int, uint64_t) { ++count; }
};
template <typename T>
size_t Written() {
  FieldCounter counter;
  const T message{};
  Visit(counter, message);
  return counter.count;
}

// A new member needs a line in ranks/digest_fields.h and in rank_digest.proto;
// otherwise reports from inside a job lack it.
TEST(RankDigestTest, EveryMemberIsWritten) {
  EXPECT_EQ(Members<RankCollective>(), 11u);  // ranks/serialize_digest.cc
  EXPECT_EQ(Members<RankDigest>(), Written<DigestMessage>());
  EXPECT_EQ(Members<GroupTraffic>(), Written<GroupTraffic>());
  // Not written: the path and its slices, memory, ranks, and whole_run.
  EXPECT_EQ(Members<Report>(), Written<Report>() + 5);
  // Not written: the times of the wait steps, and what the user told.
  EXPECT_EQ(Members<RunInfo>(), Written<RunInfo>() + 2);
  EXPECT_EQ(Members<Device>(), Written<Device>());
  EXPECT_EQ(Members<StepStats>(), Written<StepStats>());
  EXPECT_EQ(Members<StepTimes>(), Written<StepTimes>());
  EXPECT_EQ(Members<ReplayCheck>(), Written<ReplayCheck>());
  EXPECT_EQ(Members<Gain>(), Written<Gain>());
  EXPECT_EQ(Members<Example>(), Written<Example>());
  EXPECT_EQ(Members<Setting>(), Written<Setting>());
  EXPECT_EQ(Members<Finding>(), Written<Finding>());
  EXPECT_EQ(Members<SkippedRule>(), Written<SkippedRule>());
  EXPECT_EQ(Members<Loss>(), Written<Loss>());
  EXPECT_EQ(Members<Plan>(), Written<Plan>());
  EXPECT_EQ(Members<CauseAnswer>(), Written<CauseAnswer>());
  EXPECT_EQ(Members<TopOp>(), Written<TopOp>());
  EXPECT_EQ(Members<PlaceTime>(), Written<PlaceTime>());
}

// Data-parallel training in which rank 2 sorts for 4 ms. It has no source
// lines, and shapes for some operators only.
constexpr char kLateRank[] = R"(
gpu A100 pcie=24 pageable=5 cc=8.0 sms=108 bandwidth=2039
cores 16
steps 6 warmup=6
ranks 4 network=200
loader workers=0 cpu=2ms name=train batch=64
step {
  load
  rank 2 { op aten::sort 20us { kernel sort 4ms } }
  range phase forward { repeat 20 { op aten::mm 12us grad in=float[64x64],float[64x64] { kernel gemm 90us } } }
  backward { repeat 4 { repeat 5 { node MmBackward0 10us { op aten::mm 14us { kernel gemm 92us } } accumulate 5us { op aten::detach 2us } } accumulate 5us { collective all_reduce 25MB } } }
  join
  range optimizer "Optimizer.step#AdamW.step" { op aten::_fused_adamw_ 90us { kernel adam 300us } }
})";

std::vector<RankDigest> DigestsOf(const std::vector<Trace>& traces) {
  std::vector<RankDigest> digests;
  digests.reserve(traces.size());
  for (const Trace& trace : traces) digests.push_back(DigestRank(trace));
  return digests;
}

RankDigest Reread(const RankDigest& digest) {
  absl::StatusOr<RankDigest> parsed = ParseDigest(SerializeDigest(digest));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : RankDigest();
}

std::string ReportOf(const std::vector<RankDigest>& digests) {
  return ToJson(AnalyzeRanks(digests));
}

void ExpectSameReport(const std::vector<RankDigest>& digests) {
  std::vector<RankDigest> reread;
  reread.reserve(digests.size());
  for (const RankDigest& digest : digests) reread.push_back(Reread(digest));
  EXPECT_EQ(ReportOf(reread), ReportOf(digests));
}

std::string MessageOf(const std::string& bytes, absl::StatusCode code) {
  const absl::StatusOr<RankDigest> parsed = ParseDigest(bytes);
  EXPECT_EQ(parsed.status().code(), code) << parsed.status();
  return std::string(parsed.status().message());
}

TEST(RankDigestTest, AReportOfParsedDigestsIsThatOfTheOriginals) {
  const std::vector<RankDigest> digests =
      DigestsOf(MustRunProgram(kLateRank).ranks);
  const Report run = AnalyzeRanks(digests);
  ASSERT_EQ(run.ranks.why_not, "");
  ASSERT_GT(run.ranks.collectives, 0);
  ASSERT_FALSE(run.findings.empty());
  ExpectSameReport(digests);
}

TEST(RankDigestTest, RealRanksGiveTheSameReport) {
  const std::vector<RankDigest> digests = DlrmDigests();
  if (digests.empty()) GTEST_SKIP() << "dlrm_v100_8ranks is not at hand";
  ASSERT_EQ(digests.size(), 8u);
  ExpectSameReport(digests);
  for (const RankDigest& digest : digests) {
    EXPECT_LE(SerializeDigest(digest).size(), size_t{64} << 10);
  }
}

TEST(RankDigestTest, EveryKindOfFieldSurvives) {
  RankDigest digest;
  digest.report.run.name = std::string("na\0me\xff", 6);
  digest.report.run.rank = 0;  // the default is -1
  digest.report.run.pid = -1;  // the default
  digest.report.run.devices = {{.ordinal = 2,
                                .name = "A100",
                                .vendor = "Nvidia",
                                .memory_bytes = int64_t{80} << 30}};
  digest.report.step_times = {{.number = -4,
                               .kind = "steady",
                               .ms = 1.25,
                               .time_split_ms = {{"a", 0.0}, {"b", -0.5}}}};
  digest.report.time_split_spread_ms["data"] = {.least = 1, .most = 2};
  Finding finding;
  finding.severity = FindingSeverity::kCritical;
  finding.status = FindingStatus::kOk;  // 0, which is not the default
  finding.gain = {.expected_ms = 3, .low_ms = -1, .high_ms = 1e300, .pairs = 7};
  finding.settings = {{"flag", false},
                      {"whole", int64_t{0}},
                      {"real", 0.0},
                      {"text", std::string()},
                      {"some", int64_t{-5}}};
  finding.also = {"", "two"};
  digest.report.findings = {finding};
  digest.report.losses = {{.name = "lost",
                           .detail = "d",
                           .count = -1,
                           .severity = Severity::kError}};
  digest.report.plan.after_each_ms = {0, 2.5};
  digest.report.plan.assumption = "batches come as fast";
  digest.collectives = {{.step = 9,
                         .group = 0xfedcba9876543210,
                         .ordinal = 3,
                         .ends_together = true,
                         .kernel = 12,
                         .begin_ns = 1'700'000'000'000'000'000,
                         .end_ns = 1'700'000'000'000'005'000,
                         .exposed_ns = 4'000},
                        {.step = 9,
                         .group = 0xfedcba9876543210,
                         .ordinal = 4,
                         .ends_together = false,
                         .kernel = kNone,
                         .begin_ns = -7,
                         .end_ns = -9,
                         .exposed_ns = 0,
                         .bytes = int64_t{1} << 40,
                         .queued_ns = 5,
                         .stalled_ns = -1}};
  digest.groups = {{.group = 7,
                    .name = "3",
                    .description = "mesh_tp",
                    .members = "[0, 1]",
                    .size = -1,
                    .kind = "all-reduce",
                    .bus_factor = 1.5,
                    .gradients = 2}};
  digest.sm_clock_mhz = 1410;
  digest.step_shapes = {{9, 0xffffffffffffffff}, {10, 0}};
  digest.host_ms = 4.5;
  const RankDigest read = Reread(digest);
  EXPECT_EQ(ToJson(read.report), ToJson(digest.report));
  EXPECT_EQ(read.report.run.name, digest.report.run.name);
  EXPECT_EQ(read.report.run.rank, 0);
  EXPECT_EQ(read.report.run.pid, -1);
  EXPECT_EQ(read.report.run.devices.at(0).memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(read.report.run.devices.at(0).sm_count, -1);
  EXPECT_EQ(read.report.findings.at(0).settings, finding.settings);
  EXPECT_EQ(read.report.findings.at(0).also, finding.also);
  EXPECT_EQ(read.step_shapes, digest.step_shapes);
  EXPECT_EQ(read.host_ms, 4.5);
  EXPECT_EQ(read.sm_clock_mhz, 1410);
  ASSERT_EQ(read.groups.size(), 1u);
  EXPECT_EQ(read.groups[0].description, "mesh_tp");
  EXPECT_EQ(read.groups[0].size, -1);
  EXPECT_EQ(read.groups[0].gradients, 2);
  EXPECT_EQ(read.noise_ms, 0);
  ASSERT_EQ(read.collectives.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const RankCollective& a = digest.collectives[i];
    const RankCollective& b = read.collectives[i];
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.group, b.group);
    EXPECT_EQ(a.ordinal, b.ordinal);
    EXPECT_EQ(a.ends_together, b.ends_together);
    EXPECT_EQ(a.kernel, b.kernel);
    EXPECT_EQ(a.begin_ns, b.begin_ns);
    EXPECT_EQ(a.end_ns, b.end_ns);
    EXPECT_EQ(a.exposed_ns, b.exposed_ns);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.queued_ns, b.queued_ns);
    EXPECT_EQ(a.stalled_ns, b.stalled_ns);
  }
}

// Reads the digest with the classes that protoc generates from
// rank_digest.proto.
TEST(RankDigestTest, ProtobufReadsIt) {
  const RankDigest digest = DigestsOf(MustRunProgram(kLateRank).ranks)[2];
  stepscope::digest::Digest read;
  ASSERT_TRUE(read.ParseFromString(SerializeDigest(digest)));
  EXPECT_EQ(read.magic(), kDigestMagic);
  EXPECT_EQ(read.version(), 1u);
  EXPECT_EQ(read.hash(), FnvHash(read.rank()));
  stepscope::digest::Rank rank;
  ASSERT_TRUE(rank.ParseFromString(read.rank()));
  EXPECT_EQ(rank.report().run().rank(), 2);
  EXPECT_EQ(rank.report().run().world_size(), 4);
  EXPECT_EQ(rank.report().run().pid(), digest.report.run.pid);
  EXPECT_DOUBLE_EQ(rank.report().steps().mean_ms(),
                   digest.report.steps.mean_ms);
  ASSERT_EQ(rank.report().findings_size(),
            static_cast<int>(digest.report.findings.size()));
  ASSERT_GT(rank.report().top_ops_size(), 0);
  EXPECT_EQ(rank.report().top_ops(0).name(), digest.report.top_ops[0].name);
  ASSERT_GT(rank.report().skipped_size(), 0);
  EXPECT_EQ(rank.report().skipped(0).why(), digest.report.skipped[0].why);
  ASSERT_EQ(rank.collectives().group_size(),
            static_cast<int>(digest.collectives.size()));
  EXPECT_EQ(rank.collectives().begin_ns(0), digest.collectives[0].begin_ns);
  EXPECT_EQ(rank.collectives().groups(0), digest.collectives[0].group);
  // At no depth are there fields that the description lacks.
  EXPECT_EQ(rank.ByteSizeLong(), read.rank().size());
  rank.DiscardUnknownFields();
  EXPECT_EQ(rank.ByteSizeLong(), read.rank().size());
}

TEST(RankDigestTest, ANewerWriterMayHaveMoreFields) {
  const RankDigest digest = DigestsOf(MustRunProgram(kLateRank).ranks)[0];
  stepscope::digest::Digest message;
  ASSERT_TRUE(message.ParseFromString(SerializeDigest(digest)));
  std::string rank = message.rank();
  PutBytes(1000, "new", rank);
  PutKey(1001, WireType::kFixed32, rank);
  PutFixed(7, 4, rank);
  message.set_rank(rank);
  message.set_hash(FnvHash(rank));
  const auto parsed = ParseDigest(message.SerializeAsString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(ToJson(parsed->report), ToJson(Reread(digest).report));
}

TEST(RankDigestTest, AnOlderWriterHadFewerFields) {
  const std::vector<RankDigest> digests =
      DigestsOf(MustRunProgram(kLateRank).ranks);
  std::vector<RankDigest> older;
  for (const RankDigest& digest : digests) {
    stepscope::digest::Digest message;
    ASSERT_TRUE(message.ParseFromString(SerializeDigest(digest)));
    stepscope::digest::Rank rank;
    ASSERT_TRUE(rank.ParseFromString(message.rank()));
    rank.clear_groups();
    rank.clear_sm_clock_mhz();
    rank.mutable_collectives()->clear_bytes();
    rank.mutable_collectives()->clear_queued_ns();
    rank.mutable_collectives()->clear_stalled_ns();
    message.set_rank(rank.SerializeAsString());
    message.set_hash(FnvHash(message.rank()));
    auto parsed = ParseDigest(message.SerializeAsString());
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    older.push_back(*std::move(parsed));
  }
  const Report now = AnalyzeRanks(digests), before = AnalyzeRanks(older);
  EXPECT_EQ(before.ranks.collectives, now.ranks.collectives);
  EXPECT_EQ(before.ranks.waiting_ms, now.ranks.waiting_ms);
  EXPECT_TRUE(before.ranks.groups.empty());
  EXPECT_EQ(before.ranks.mended.rank, -1);
  EXPECT_NE(before.ranks.why_not_mended, "");
  // Columns of different lengths are reported as damage.
  stepscope::digest::Digest message;
  ASSERT_TRUE(message.ParseFromString(SerializeDigest(digests[0])));
  stepscope::digest::Rank rank;
  ASSERT_TRUE(rank.ParseFromString(message.rank()));
  rank.mutable_collectives()->add_bytes(1);
  message.set_rank(rank.SerializeAsString());
  message.set_hash(FnvHash(message.rank()));
  EXPECT_FALSE(ParseDigest(message.SerializeAsString()).ok());
}

TEST(RankDigestTest, SaysWhatIsWrongAndWhatToDo) {
  const std::string bytes =
      SerializeDigest(DigestsOf(MustRunProgram(kLateRank).ranks)[0]);
  EXPECT_THAT(MessageOf("{}", absl::StatusCode::kInvalidArgument),
              HasSubstr("no digest"));
  EXPECT_THAT(MessageOf("", absl::StatusCode::kInvalidArgument),
              HasSubstr("stepscope analyze FOLDER"));
  EXPECT_THAT(MessageOf(std::string(kMostDigestBytes + 1, 'x'),
                        absl::StatusCode::kInvalidArgument),
              HasSubstr("larger"));
  for (size_t size : {size_t{6}, bytes.size() / 2, bytes.size() - 1}) {
    EXPECT_THAT(MessageOf(bytes.substr(0, size), absl::StatusCode::kDataLoss),
                HasSubstr("damaged"));
  }
  stepscope::digest::Digest newer;
  ASSERT_TRUE(newer.ParseFromString(bytes));
  newer.set_version(2);
  newer.set_producer("stepscope 9.1.0");
  const std::string message =
      MessageOf(newer.SerializeAsString(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message, HasSubstr("stepscope 9.1.0"));
  EXPECT_THAT(message, HasSubstr("update"));
}

TEST(RankDigestTest, NoChangeOfAByteGoesUnnoticed) {
  const std::string bytes =
      SerializeDigest(DigestsOf(MustRunProgram(kLateRank).ranks)[0]);
  const std::string producer = std::string("stepscope ");
  const size_t free = bytes.find(producer);  // the producer may change
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string changed = bytes;
    const size_t at = random() % bytes.size();
    if (at + 3 >= free && at < free + 32) continue;
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
    EXPECT_FALSE(ParseDigest(changed).ok()) << at;
  }
}

// The hash detects accidental damage. Damaged data with a correct hash must do
// no harm either, which the sanitizers check.
TEST(RankDigestTest, ReadsAnyBytesWithoutHarm) {
  stepscope::digest::Digest message;
  ASSERT_TRUE(message.ParseFromString(
      SerializeDigest(DigestsOf(MustRunProgram(kLateRank).ranks)[0])));
  const std::string rank = message.rank();
  std::mt19937 random(6);
  int read = 0;
  for (int i = 0; i < 2'000; ++i) {
    std::string changed = rank;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) changed.resize(random() % changed.size());
    message.set_rank(changed);
    message.set_hash(FnvHash(changed));
    read += ParseDigest(message.SerializeAsString()).ok();
  }
  EXPECT_GT(read, 0);
  // Many empty messages fit into few bytes.
  std::string many;
  for (int i = 0; i < 100'000; ++i) PutBytes(3, "", many);
  message.set_rank(many);
  message.set_hash(FnvHash(many));
  EXPECT_FALSE(ParseDigest(message.SerializeAsString()).ok());
}

// Steps with `per_step` all-reduces of one element each.
Trace ManyCollectives(int steps, int per_step) {
  std::string rows = "run rank=0 world_size=2\n";
  for (int step = 0; step < steps; ++step) {
    const int64_t base = step * int64_t{100'000'000};
    rows += "step " + std::to_string(base) + ".." +
            std::to_string(base + 100'000'000) +
            " thread=0 number=" + std::to_string(step) + "\n";
    for (int i = 0; i < per_step; ++i) {
      const int64_t at = base + 1'000 + int64_t{i} * 30'000;
      rows += "kernel " + std::to_string(at) + ".." +
              std::to_string(at + 20'000) +
              " stream=20 ncclDevKernel_AllReduce_Sum_f32_RING_LL\n";
    }
  }
  return TraceFromText(rows);
}

TEST(RankDigestTest, CollectivesAreCutByWholeStepsAndTheReportSaysSo) {
  const RankDigest cut = DigestRank(ManyCollectives(8, 3'000));
  EXPECT_EQ(cut.collectives.size(), 18'000u);
  EXPECT_EQ(cut.collectives.back().step, 5);
  ASSERT_EQ(cut.report.losses.size(), 1u);
  EXPECT_EQ(cut.report.losses[0].name, "collectives-cut");
  EXPECT_EQ(cut.report.losses[0].count, 6'000);
  EXPECT_THAT(cut.report.losses[0].detail, HasSubstr("18000 of 24000"));
  EXPECT_LT(SerializeDigest(cut).size(), size_t{1} << 20);
  const RankDigest whole = DigestRank(ManyCollectives(5, 3'000));
  EXPECT_EQ(whole.collectives.size(), 15'000u);
  EXPECT_TRUE(whole.report.losses.empty());
}

}  // namespace
}  // namespace stepscope::rank_digest_test
