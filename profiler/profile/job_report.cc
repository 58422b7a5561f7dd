#include "job_report.h"

#include <stepscope/export.h>
#include <stepscope/rank_digest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <exception>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "ending_signals.h"

namespace stepscope {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Ranks run in step, so by the end of a window every rank has long announced
// itself. Only background threads may be behind.
constexpr milliseconds kAnnounceGrace(2000);
constexpr milliseconds kPoll(20);
constexpr char kDoesNotRecord[] = "does not record";

// Needed because process ids are unique only within their namespace.
std::string PidNamespace() {
  std::array<char, 64> name{};
  const ssize_t size =
      readlink("/proc/self/ns/pid", name.data(), name.size() - 1);
  return size > 0 ? std::string(name.data(), static_cast<size_t>(size)) : "?";
}

// "<host> <namespace> <pid>".
std::string OwnAnnouncement(const RunIdentity& identity) {
  return identity.host + " " + PidNamespace() + " " + std::to_string(getpid());
}

// True if the process that announced itself ran on this host and is gone.
bool IsGone(const std::string& announcement, const RunIdentity& identity) {
  std::istringstream words(announcement);
  std::string host, space;
  pid_t pid = 0;
  if (!(words >> host >> space >> pid) || pid <= 0) return false;
  return host == identity.host && space == PidNamespace() && space != "?" &&
         kill(pid, 0) != 0 && errno == ESRCH;
}

std::string SecondsOf(milliseconds time) {
  std::ostringstream text;
  text << static_cast<double>(time.count()) * 1e-3;
  return text.str() + " s";
}

}  // namespace

JobReport::JobReport(Options options, std::shared_ptr<LogRun> log,
                     std::shared_ptr<Errors> errors)
    : options_(std::move(options)),
      log_(std::move(log)),
      errors_(std::move(errors)),
      exchange_works_(options_.exchange != nullptr),
      announced_(static_cast<size_t>(options_.identity.world_size)) {}

std::string JobReport::Key(const std::string& what, int32_t rank) const {
  return "stepscope/" + options_.key + "/" + what + "/rank" +
         std::to_string(rank);
}

// After one failure the store is not used again: files replace it.
void JobReport::PutOrSay(const std::string& key, const std::string& value) {
  if (!exchange_works_) return;
  const absl::Status put = options_.exchange->Put(key, value);
  if (put.ok()) return;
  exchange_works_ = false;
  if (put.code() == absl::StatusCode::kFailedPrecondition) return;
  errors_->Add(absl::Status(
      put.code(),
      "the window was not handed to rank 0 through the job's store: " +
          MessageOf(put) + "; rank 0 looks for its file in a shared log_dir"));
}

std::optional<std::string> JobReport::Find(const std::string& key) {
  if (!exchange_works_) return std::nullopt;
  absl::StatusOr<std::optional<std::string>> found =
      options_.exchange->Get(key);
  if (found.ok()) return *std::move(found);
  exchange_works_ = false;
  if (found.status().code() != absl::StatusCode::kFailedPrecondition) {
    errors_->Add(absl::Status(
        found.status().code(),
        "the windows of the other ranks cannot be read from the job's store: " +
            MessageOf(found.status()) + "; files of log_dir take their place"));
  }
  return std::nullopt;
}

void JobReport::Announce() noexcept {
  errors_->Guard("rank 0 was not told that this rank records", [&] {
    if (options_.identity.rank == 0) return;
    const std::string text = OwnAnnouncement(options_.identity);
    if (log_ != nullptr) log_->Announce(text);
    PutOrSay(Key("here", options_.identity.rank), text);
  });
}

void JobReport::Send(const RankDigest& digest, int32_t cycle,
                     const std::string& path) noexcept {
  errors_->Guard("the window was not handed to rank 0", [&] {
    const std::string bytes = SerializeDigest(digest);
    if (!path.empty()) {
      if (absl::Status s = WriteText(bytes, path); !s.ok()) errors_->Add(s);
    }
    if (options_.identity.rank == 0) return;
    PutOrSay(Key("c" + std::to_string(cycle), options_.identity.rank), bytes);
  });
}

// No half-written file is read, because a file is renamed to its final name
// only when it is complete.
std::optional<std::string> JobReport::FileOf(int32_t rank, int32_t cycle) {
  if (log_ == nullptr) return std::nullopt;
  std::ifstream file(log_->DigestPathOf(rank, cycle), std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<std::string> JobReport::AnnouncementOf(int32_t rank) {
  std::optional<std::string>& known = announced_[static_cast<size_t>(rank)];
  if (!known) known = Find(Key("here", rank));
  if (!known && log_ != nullptr) known = log_->AnnouncementOf(rank);
  return known;
}

// True if the rank has sent something, even if it is damaged.
bool JobReport::Take(int32_t rank, int32_t cycle, bool from_files,
                     Collected& collected) {
  const std::optional<std::string> bytes =
      from_files ? FileOf(rank, cycle)
                 : Find(Key("c" + std::to_string(cycle), rank));
  if (!bytes) return false;
  absl::StatusOr<RankDigest> digest = ParseDigest(*bytes);
  if (!digest.ok()) {
    collected.missing[rank] =
        "sent a digest that " + MessageOf(digest.status());
    return true;
  }
  if (digest->report.run.rank != rank) {
    collected.missing[rank] = "sent the digest of rank " +
                              std::to_string(digest->report.run.rank) +
                              "; give each Profile a name of its own";
    return true;
  }
  collected.missing.erase(rank);
  collected.digests.push_back(*std::move(digest));
  return true;
}

// Called at the end of the wait: reads the files of ranks that did not use the
// store.
void JobReport::TakeFiles(int32_t cycle, Collected& collected) {
  const std::map<int32_t, std::string> missing = collected.missing;
  for (const auto& [rank, why] : missing) Take(rank, cycle, true, collected);
}

// If a signal ends the program, rank 0 waits only for half of the remaining
// grace period. The other half is for the files of its own window, which are
// written afterwards.
bool JobReport::IsLate(milliseconds waited) const {
  return waited >= options_.timeout ||
         (EndingSignals::Caught() != 0 && waited >= EndingSignals::Left());
}

JobReport::Collected JobReport::Collect(RankDigest own, int32_t cycle) {
  Collected collected;
  collected.digests.push_back(std::move(own));
  std::set<int32_t> waiting;
  for (int32_t r = 1; r < options_.identity.world_size; ++r) waiting.insert(r);
  const auto begin = steady_clock::now();
  while (!waiting.empty() && (exchange_works_ || log_ != nullptr)) {
    const auto waited =
        std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
    std::erase_if(waiting, [&](int32_t rank) {
      // Check this before looking for the rank's data, because a rank may send
      // its data and end in between.
      const std::optional<std::string> there = AnnouncementOf(rank);
      const bool gone = there && IsGone(*there, options_.identity);
      if (Take(rank, cycle, !exchange_works_, collected)) {
        collected.anybody = true;
        return true;
      }
      collected.anybody |= there.has_value();
      std::string& why = collected.missing[rank];
      if (gone) {
        why = "ended before its window was analysed";
      } else if (!there) {
        why = kDoesNotRecord;
        return waited >= std::min(kAnnounceGrace, options_.timeout);
      } else {
        why = "sent nothing within " +
              SecondsOf(std::min(options_.timeout, waited));
      }
      return gone;
    });
    if (IsLate(waited)) break;
    if (!waiting.empty()) std::this_thread::sleep_for(kPoll);
  }
  if (exchange_works_) TakeFiles(cycle, collected);
  if (!exchange_works_ && log_ == nullptr) {
    for (int32_t rank : waiting) {
      collected.missing[rank] = "could not be asked: the job's store failed";
    }
  }
  return collected;
}

std::optional<Report> JobReport::Gather(RankDigest own, int32_t cycle) {
  Report alone = own.report;
  Collected collected = Collect(std::move(own), cycle);
  if (!collected.anybody) return std::nullopt;
  std::ranges::sort(collected.digests, {}, [](const RankDigest& digest) {
    return digest.report.run.rank;
  });
  std::string why_not = "no other rank sent a window";
  if (collected.digests.size() > 1) {
    Report run = AnalyzeRanks(collected.digests);
    if (run.ranks.why_not.empty()) {
      NameMissingRanks(collected.missing, run);
      return run;
    }
    why_not = run.ranks.why_not;
  }
  alone.losses.push_back(
      {.name = "ranks-not-compared",
       .detail = "this is the report of rank 0 alone: " + why_not,
       .count = -1,
       .severity = Severity::kWarning});
  NameMissingRanks(collected.missing, alone);
  return alone;
}

}  // namespace stepscope
