// JobReport: rank 0 makes the report of all ranks while the job runs. Every
// rank sends the digest of its window to rank 0, through the program's
// RankExchange and as a file of the log directory. No collective is used. Only
// rank 0 waits for other ranks, on its background thread and for a limited
// time.
//
// All calls are made on the background thread.
#pragma once

#include <stepscope/rank_exchange.h>
#include <stepscope/ranks.h>
#include <stepscope/report.h>
#include <stepscope/run_identity.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "console.h"
#include "log_run.h"

namespace stepscope {

class JobReport {
 public:
  struct Options {
    RunIdentity identity;
    // The same for this Profile on all ranks, and different from the keys of
    // the job's other Profiles.
    std::string key;
    std::shared_ptr<RankExchange> exchange;  // may be null
    // How long rank 0 waits for digests, counted from its own digest.
    std::chrono::milliseconds timeout;
  };

  // If `log` is null, there are no files. REQUIRES: an exchange or a log.
  JobReport(Options options, std::shared_ptr<LogRun> log,
            std::shared_ptr<Errors> errors);

  // Tells rank 0 that this rank records. Rank 0 waits only for such ranks,
  // because many programs profile rank 0 alone.
  void Announce() noexcept;

  // Writes the digest to `path` ("": no file), and sends it to rank 0.
  void Send(const RankDigest& digest, int32_t cycle,
            const std::string& path) noexcept;

  // Returns the report of all ranks, or nullopt if no other rank records. Its
  // losses name the ranks that sent nothing in time. REQUIRES: this is rank 0.
  // `own` is the digest of its window.
  std::optional<Report> Gather(RankDigest own, int32_t cycle);

 private:
  struct Collected {
    std::vector<RankDigest> digests;
    std::map<int32_t, std::string> missing;  // rank -> why, in words
    bool anybody = false;                    // another rank records
  };

  std::string Key(const std::string& what, int32_t rank) const;
  void PutOrSay(const std::string& key, const std::string& value);
  std::optional<std::string> Find(const std::string& key);
  std::optional<std::string> FileOf(int32_t rank, int32_t cycle);
  std::optional<std::string> AnnouncementOf(int32_t rank);
  bool Take(int32_t rank, int32_t cycle, bool from_files, Collected& collected);
  void TakeFiles(int32_t cycle, Collected& collected);
  bool IsLate(std::chrono::milliseconds waited) const;
  Collected Collect(RankDigest own, int32_t cycle);

  const Options options_;
  const std::shared_ptr<LogRun> log_;
  const std::shared_ptr<Errors> errors_;
  bool exchange_works_;
  std::vector<std::optional<std::string>> announced_;  // by rank
};

}  // namespace stepscope
