#include "job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/rank_digest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ending_signals.h"
#include "support/program_simulator.h"
#include "support/temp_folder.h"

namespace stepscope::job_report_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A store that all ranks of a test share. A test can make it fail.
class FakeStore {
 public:
  std::map<std::string, std::string> values;
  std::mutex mutex;
  absl::Status error;
  bool throws = false;
};

class FakeExchange final : public RankExchange {
 public:
  explicit FakeExchange(std::shared_ptr<FakeStore> store)
      : store_(std::move(store)) {}
  absl::Status Put(const std::string& key, const std::string& value) override {
    const std::scoped_lock lock(store_->mutex);
    if (store_->throws) throw std::runtime_error("no such host");
    if (!store_->error.ok()) return store_->error;
    store_->values[key] = value;
    return absl::OkStatus();
  }
  absl::StatusOr<std::optional<std::string>> Get(
      const std::string& key) override {
    const std::scoped_lock lock(store_->mutex);
    if (!store_->error.ok()) return store_->error;
    const auto found = store_->values.find(key);
    if (found == store_->values.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::shared_ptr<FakeStore> store_;
};

// Four ranks, of which rank 2 computes longer.
const std::vector<RankDigest>& Digests() {
  static const auto* const digests = [] {
    auto* made = new std::vector<RankDigest>;
    const ProgramRun run = MustRunProgram(R"(
gpu A100
cores 16
steps 6 warmup=6
ranks 4 network=200
step {
  rank 2 { op aten::sort 20us { kernel sort 4ms } }
  range phase forward { repeat 20 { op aten::mm 12us grad { kernel gemm 90us } } }
  backward { repeat 4 { repeat 5 { node MmBackward0 10us { op aten::mm 14us { kernel gemm 92us } } accumulate 5us { op aten::detach 2us } } accumulate 5us { collective all_reduce 25MB } } }
  join
})");
    for (const Trace& trace : run.ranks) made->push_back(DigestRank(trace));
    return made;
  }();
  return *digests;
}

RunIdentity IdentityOf(int rank, int ranks) {
  RunIdentity identity;
  identity.name = "train";
  identity.host = "node1";
  identity.rank = rank;
  identity.world_size = ranks;
  identity.job = "job";
  identity.start = "2026_01_02_03_04_05";
  identity.start_s = 1'000'000;
  return identity;
}

class JobReportTest : public ::testing::Test {
 protected:
  std::shared_ptr<LogRun> Log(int rank, int ranks) {
    auto log = LogRun::Make(folder_.path().string(), IdentityOf(rank, ranks));
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }

  std::unique_ptr<JobReport> Job(int rank,
                                 std::shared_ptr<LogRun> log = nullptr,
                                 milliseconds timeout = milliseconds(200)) {
    return std::make_unique<JobReport>(
        JobReport::Options{
            .identity = IdentityOf(rank, 4),
            .key = "train/0",
            .exchange =
                store_ ? std::make_shared<FakeExchange>(store_) : nullptr,
            .timeout = timeout},
        std::move(log), errors_);
  }

  void Announced(std::initializer_list<int> ranks) {
    for (int rank : ranks) Job(rank)->Announce();
  }
  void Sent(std::initializer_list<int> ranks) {
    for (int rank : ranks)
      Job(rank)->Send(Digests()[static_cast<size_t>(rank)], 0, "");
  }

  static std::string Losses(const std::optional<Report>& report) {
    std::string text;
    if (!report) return "no report";
    for (const Loss& loss : report->losses) {
      text += loss.name + ": " + loss.detail + "\n";
    }
    return text;
  }

  TempFolder folder_;
  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  std::shared_ptr<Errors> errors_ = std::make_shared<Errors>("");
};

TEST_F(JobReportTest, RankZeroReportsOnAllRanks) {
  Announced({1, 2, 3});
  Sent({3, 1, 2});
  const std::optional<Report> report = Job(0)->Gather(Digests()[0], 0);
  ASSERT_TRUE(report);
  EXPECT_EQ(ToJson(*report), ToJson(AnalyzeRanks(Digests())));
  EXPECT_TRUE(errors_->first().ok()) << errors_->first();
}

TEST_F(JobReportTest, ARankThatIsLateIsWaitedFor) {
  Announced({1, 2, 3});
  Sent({1, 2});
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    Sent({3});
  });
  const std::optional<Report> report =
      Job(0, nullptr, milliseconds(60'000))->Gather(Digests()[0], 0);
  late.join();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->ranks.rows.size(), 4u);
  EXPECT_THAT(report->losses, IsEmpty());
}

TEST_F(JobReportTest, RanksThatSendNothingAreNamed) {
  Announced({1, 2, 3});
  Sent({2});
  const std::optional<Report> report = Job(0)->Gather(Digests()[0], 0);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->ranks.rows.size(), 2u);
  ASSERT_EQ(report->losses.size(), 1u) << Losses(report);
  EXPECT_EQ(report->losses[0].detail,
            "ranks 1 and 3 sent nothing within 0.2 s");
  EXPECT_EQ(report->losses[0].count, 2);
  EXPECT_THAT(ToText(*report, TextOptions{}), HasSubstr("ranks 1 and 3"));
}

TEST_F(JobReportTest, WithoutAnotherRankItIsTheReportOfRankZeroWhichNamesThem) {
  Announced({1});
  const std::optional<Report> report = Job(0)->Gather(Digests()[0], 0);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->run.rank, 0);
  EXPECT_EQ(report->steps.mean_ms, Digests()[0].report.steps.mean_ms);
  EXPECT_EQ(Losses(report),
            "ranks-not-compared: this is the report of rank 0 alone: no other "
            "rank sent a window\n"
            "missing-rank: ranks 2 and 3 do not record\n"
            "missing-rank: rank 1 sent nothing within 0.2 s\n");
}

// After SIGTERM, rank 0 also needs time to write the files of its own window.
TEST_F(JobReportTest, AProgramThatEndsWaitsForOtherRanksHalfOfItsGrace) {
  Announced({1});
  EXPECT_EXIT(
      {
        const auto signals = EndingSignals::Make(milliseconds(2000));
        raise(SIGTERM);
        Job(0, nullptr, milliseconds(600'000))->Gather(Digests()[0], 0);
        std::fputs("gathered", stderr);
      },
      testing::KilledBySignal(SIGTERM), "gathered");
}

// Many programs profile only rank 0.
TEST_F(JobReportTest, RanksThatDoNotRecordAreNotWaitedFor) {
  const auto begin = steady_clock::now();
  EXPECT_FALSE(Job(0, nullptr, milliseconds(600'000))->Gather(Digests()[0], 0));
  EXPECT_LT(steady_clock::now() - begin, milliseconds(300'000));
}

TEST_F(JobReportTest, ARankWhoseProcessIsGoneIsNotWaitedFor) {
  const pid_t child = fork();
  if (child == 0) {
    Job(1)->Announce();  // changes the child's memory; only the text matters
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  Announced({1, 2, 3});
  std::string& here = store_->values.at("stepscope/train/0/here/rank1");
  here.replace(here.rfind(' ') + 1, std::string::npos, std::to_string(child));
  Sent({2, 3});
  const std::optional<Report> report =
      Job(0, nullptr, milliseconds(600'000))->Gather(Digests()[0], 0);
  EXPECT_EQ(Losses(report),
            "missing-rank: rank 1 ended before its window was analysed\n");
  // A digest that it sent before it ended counts.
  Sent({1});
  EXPECT_EQ(Losses(Job(0)->Gather(Digests()[0], 0)), "");
}

TEST_F(JobReportTest, DamagedDigestsAndThoseOfOtherRanksAreNamed) {
  Announced({1, 2, 3});
  Sent({1, 2, 3});
  std::string& damaged = store_->values.at("stepscope/train/0/c0/rank1");
  damaged.resize(damaged.size() / 2);
  store_->values["stepscope/train/0/c0/rank2"] =
      store_->values["stepscope/train/0/c0/rank3"];
  const std::optional<Report> report = Job(0)->Gather(Digests()[0], 0);
  EXPECT_THAT(Losses(report),
              HasSubstr("rank 1 sent a digest that is damaged"));
  EXPECT_THAT(Losses(report), HasSubstr("rank 2 sent the digest of rank 3"));
  EXPECT_EQ(report->ranks.rows.size(), 2u);
}

TEST_F(JobReportTest, AnotherCycleIsAnotherWindow) {
  Announced({1, 2, 3});
  Sent({1, 2, 3});
  EXPECT_THAT(Losses(Job(0)->Gather(Digests()[0], 1)),
              HasSubstr("ranks 1, 2 and 3 sent nothing"));
}

// The files of one log directory, as written by all ranks.
class JobFilesTest : public JobReportTest {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 4; ++rank) {
      logs_.push_back(Log(rank, 4));
      jobs_.push_back(Job(rank, logs_.back()));
    }
  }
  void Write(int rank) {
    const auto paths = logs_[static_cast<size_t>(rank)]->PathsOf(0);
    ASSERT_TRUE(paths.ok()) << paths.status();
    jobs_[static_cast<size_t>(rank)]->Send(Digests()[static_cast<size_t>(rank)],
                                           0, paths->digest);
  }
  std::vector<std::shared_ptr<LogRun>> logs_;
  std::vector<std::unique_ptr<JobReport>> jobs_;
};

class WithoutStore : public JobFilesTest {
 protected:
  WithoutStore() { store_ = nullptr; }
};

TEST_F(WithoutStore, TheFilesOfASharedLogDirectoryDo) {
  for (int rank : {1, 2, 3}) jobs_[static_cast<size_t>(rank)]->Announce();
  for (int rank : {0, 1, 2, 3}) Write(rank);
  const std::optional<Report> report = jobs_[0]->Gather(Digests()[0], 0);
  ASSERT_TRUE(report);
  EXPECT_EQ(ToJson(*report), ToJson(AnalyzeRanks(Digests())));
}

TEST_F(WithoutStore, WhoAnnouncedItselfIsWaitedForAndNamed) {
  for (int rank : {1, 3}) jobs_[static_cast<size_t>(rank)]->Announce();
  Write(3);
  EXPECT_EQ(Losses(jobs_[0]->Gather(Digests()[0], 0)),
            "missing-rank: rank 2 does not record\n"
            "missing-rank: rank 1 sent nothing within 0.2 s\n");
}

TEST_F(WithoutStore, AnAnnouncementEndsWithItsLogAndThatOfAnEarlierJobIsNone) {
  jobs_[1]->Announce();
  EXPECT_TRUE(logs_[0]->AnnouncementOf(1));
  RunIdentity later = IdentityOf(0, 4);
  later.start_s += 3'600;
  const auto log = LogRun::Make(folder_.path().string(), later);
  ASSERT_TRUE(log.ok());
  EXPECT_FALSE((*log)->AnnouncementOf(1));
  jobs_[1].reset();
  logs_[1].reset();
  EXPECT_FALSE(logs_[0]->AnnouncementOf(1));
}

TEST_F(JobFilesTest, FilesTakeThePlaceOfAStoreThatFails) {
  for (int rank : {1, 2, 3}) jobs_[static_cast<size_t>(rank)]->Announce();
  store_->error = absl::UnavailableError("connection reset by peer");
  testing::internal::CaptureStderr();
  for (int rank : {1, 2, 3}) Write(rank);
  const std::optional<Report> report = jobs_[0]->Gather(Digests()[0], 0);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(report);
  EXPECT_EQ(ToJson(*report), ToJson(AnalyzeRanks(Digests())));
  EXPECT_THAT(said, HasSubstr("connection reset by peer"));
}

// This rank's store failed, but rank 0's works.
TEST_F(JobFilesTest, TheFileOfARankTakesItsPlaceAtTheEndOfTheWait) {
  for (int rank : {1, 2, 3}) jobs_[static_cast<size_t>(rank)]->Announce();
  for (int rank : {1, 2, 3}) Write(rank);
  store_->values.erase("stepscope/train/0/c0/rank3");
  EXPECT_EQ(Losses(jobs_[0]->Gather(Digests()[0], 0)), "");
}

TEST_F(JobReportTest, AStoreThatThrowsIsAnErrorAndNoMore) {
  store_->throws = true;
  testing::internal::CaptureStderr();
  Announced({1});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no such host"));
  EXPECT_FALSE(errors_->first().ok());
}

TEST_F(JobReportTest, AProgramWithoutAStoreIsToldNothing) {
  store_->error = absl::FailedPreconditionError("no process group");
  testing::internal::CaptureStderr();
  Announced({1});
  EXPECT_FALSE(Job(0)->Gather(Digests()[0], 0));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace stepscope::job_report_test
