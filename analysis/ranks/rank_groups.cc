#include "ranks/rank_groups.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace stepscope {
namespace {

// With many ranks, each may have groups of its own.
constexpr size_t kGroupsListed = 1000;
// Latency dominates smaller collectives, so they show no bandwidth.
constexpr int64_t kBytesForRate = 1 << 20;
// A tensor-parallel layer reduces activations twice in each pass (source:
// Shoeybi et al., "Megatron-LM", section 3). Fewer all-reduces per step may
// belong to a metric.
constexpr double kReducedPerStep = 4;

// Returns the ranks in the order of the group; empty if the text does not list
// them all.
std::vector<int32_t> MembersOf(const std::string& text) {
  std::vector<int32_t> ranks;
  // torch.profiler writes long lists as "[0, 1, ..., 63]".
  if (text.find("...") != std::string::npos) return ranks;
  int64_t number = -1;
  for (char c : text + ",") {
    if (std::isdigit(static_cast<unsigned char>(c))) {
      number = std::min<int64_t>(10 * std::max<int64_t>(number, 0) + (c - '0'),
                                 INT32_MAX);
    } else if (number >= 0) {
      ranks.push_back(static_cast<int32_t>(number));
      number = -1;
    }
  }
  return ranks;
}

std::set<std::string> WordsOf(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

bool HasAny(const std::set<std::string>& words,
            std::initializer_list<const char*> of) {
  return std::ranges::any_of(
      of, [&](const char* word) { return words.contains(word); });
}

}  // namespace

const char* ParallelismOf(const std::string& description) {
  const std::set<std::string> words = WordsOf(description);
  const bool shard = HasAny(words, {"fsdp", "shard", "sharded", "zero"});
  const bool data =
      shard || HasAny(words, {"dp", "ddp", "data", "replicate", "replicated"});
  // Whole words only, because "tp" and "ep" occur inside many others.
  const bool tensor = HasAny(words, {"tp", "tensor"});
  const bool pipeline = HasAny(words, {"pp", "pipe", "pipeline"});
  // Gives up on a group of several dimensions, such as
  // TENSOR_AND_DATA_PARALLEL_GROUP.
  if (data + tensor + pipeline > 1) return "";
  if (pipeline) return "pipeline";
  if (tensor) return "tensor";
  if (data) return shard ? "sharded data" : "data";
  if (HasAny(words, {"ep", "expert", "experts", "moe"})) return "expert";
  return HasAny(words, {"cp", "context", "sp", "sequence"}) ? "context" : "";
}

GroupTotals::GroupTotals(const std::vector<RankDigest>& ranks,
                         const std::vector<double>& offsets)
    : ranks_(ranks), offsets_(offsets) {
  std::map<std::tuple<std::string, std::string, int32_t>, size_t> known;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankDigest& rank = ranks[r];
    std::set<size_t> mine;
    for (const GroupTraffic& group : rank.groups) {
      const std::string& identity =
          group.members.empty() ? group.name : group.members;
      const auto [entry, is_new] = known.try_emplace(
          {identity, group.description, group.size}, totals_.size());
      if (is_new) {
        totals_.emplace_back();
        totals_.back().row.name = group.name;
        totals_.back().row.description = group.description;
        totals_.back().row.size = group.size;
      }
      Totals& totals = totals_[entry->second];
      by_group_[group.group] = entry->second;
      bus_factors_[group.group] = group.bus_factor;
      mine.insert(entry->second);
      totals.shards |= group.shards;
      totals.gradients += group.gradients;
      totals.count += group.count;
      if (!group.is_integer) totals.kinds[group.kind] += group.count;
    }
    std::set<int64_t> steps;
    for (const RankCollective& one : rank.collectives) steps.insert(one.step);
    const auto share =
        1 / static_cast<double>(std::max<size_t>(steps.size(), 1));
    for (const size_t i : mine) {
      totals_[i].row.ranks.push_back(rank.report.run.rank);
      totals_[i].steps[r] = static_cast<double>(steps.size());
    }
    for (const RankCollective& one : rank.collectives) {
      const auto group = by_group_.find(one.group);
      if (group == by_group_.end()) continue;
      RankGroupRow& row = totals_[group->second].row;
      row.collectives += share;
      row.total_ms +=
          share * static_cast<double>(one.end_ns - one.begin_ns) * 1e-6;
      row.exposed_ms += share * static_cast<double>(one.exposed_ns) * 1e-6;
      if (one.bytes > 0) row.bytes += share * static_cast<double>(one.bytes);
    }
  }
}

BusTransfer GroupTotals::AddWait(const MatchedCollective& collective,
                                 double waiting_ms, int64_t last,
                                 double arrival_ns) {
  const auto group = by_group_.find(collective.group);
  if (group == by_group_.end()) return {};
  Totals& totals = totals_[group->second];
  totals.row.waiting_ms += waiting_ms;
  if (last >= 0) ++totals.last[static_cast<size_t>(last)];
  // Without all ranks the last arrival, where the transfer starts, is unknown.
  if (totals.row.size > 0 &&
      collective.members.size() != static_cast<size_t>(totals.row.size)) {
    return {};
  }
  double end = INFINITY;
  int64_t bytes = INT64_MAX;
  for (const auto& [r, i] : collective.members) {
    const RankCollective& one = ranks_[r].collectives[i];
    end = std::min(end, static_cast<double>(one.end_ns -
                                            ranks_[0].collectives[0].begin_ns) -
                            offsets_[r]);
    // If the size is unknown on one rank (-1), the collective gives no rate.
    bytes = std::min(bytes, one.bytes);
  }
  if (bytes < kBytesForRate || end <= arrival_ns) return {};
  const BusTransfer moved = {
      .bytes = static_cast<double>(bytes) * bus_factors_[collective.group],
      .ns = end - arrival_ns};
  totals.moved += moved;
  return moved;
}

size_t GroupTotals::IndexOf(uint64_t group) const {
  const auto found = by_group_.find(group);
  return found == by_group_.end() ? SIZE_MAX : found->second;
}

std::vector<RankGroupRow> GroupTotals::Rows() const {
  std::map<int32_t, std::string> host_of;
  for (const RankDigest& rank : ranks_) {
    host_of[rank.report.run.rank] = rank.report.run.host;
  }
  std::vector<RankGroupRow> rows;
  for (const Totals& totals : totals_) {
    RankGroupRow row = totals.row;
    std::ranges::sort(row.ranks);
    const auto count =
        static_cast<double>(std::max<size_t>(row.ranks.size(), 1));
    double steps = 0;
    for (const auto& [r, number] : totals.steps) steps += number;
    for (double* sum :
         {&row.collectives, &row.total_ms, &row.exposed_ms, &row.bytes}) {
      *sum /= count;
    }
    row.waiting_ms = steps > 0 ? row.waiting_ms / steps : 0;
    row.gb_per_s = totals.moved.GbPerS();
    for (const auto& [r, times] : totals.last) {
      if (times <= row.last) continue;
      row.last = times;
      row.last_rank = ranks_[r].report.run.rank;
    }
    std::set<std::string> hosts;
    for (int32_t rank : row.ranks) hosts.insert(host_of[rank]);
    row.hosts = hosts.contains("") ? 0 : static_cast<int64_t>(hosts.size());

    // Find the parallelism by the description, or else by what the group
    // carries.
    row.parallelism = ParallelismOf(row.description);
    if (!row.parallelism.empty()) {
      row.evidence = "described as " + row.description;
    } else {
      int64_t all = 0;
      for (const auto& [kind, times] : totals.kinds) all += times;
      // True if more than half of the group's floating-point collectives are of
      // these kinds. Integer data, such as announced shapes, do not count.
      const auto most = [&](std::initializer_list<const char*> kinds) {
        int64_t times = 0;
        for (const char* kind : kinds) {
          const auto found = totals.kinds.find(kind);
          if (found != totals.kinds.end()) times += found->second;
        }
        return 2 * times > all;
      };
      const auto guess = [&](const char* parallelism, const char* evidence) {
        row.parallelism = parallelism;
        row.evidence = evidence;
      };
      if (most({"point-to-point"}) && row.size > 0) {
        guess("pipeline", "messages between two ranks");
      } else if (2 * totals.gradients > all) {
        guess("data", "all-reduces of gradients");
      } else if (most({"all-gather", "reduce-scatter"}) && totals.shards) {
        guess("sharded data", "shards of parameters and gradients");
      } else if (most({"all-to-all"})) {
        guess("expert", "all-to-alls (of experts or sharded embeddings)");
      } else if (most({"all-reduce"}) && row.collectives >= kReducedPerStep) {
        guess("tensor", "all-reduces that are not of gradients");
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void LimitGroups(std::vector<RankGroupRow>& rows) {
  std::ranges::stable_sort(rows, std::greater(), &RankGroupRow::exposed_ms);
  if (rows.size() > kGroupsListed) rows.resize(kGroupsListed);
}

namespace {

// What one rank receives in one pipeline, and how long it waits for it.
struct StageMessages {
  int64_t received = 0;  // messages per step; -1 if it differs between steps
  double waiting_ms = 0;
  std::string members;
};

// Finds the rank's messages of the pipeline by the group's description and
// size.
StageMessages MessagesOf(const RankDigest& rank, const RankGroupRow& pipeline) {
  StageMessages messages;
  std::set<uint64_t> groups;
  std::set<int64_t> steps;
  for (const RankCollective& one : rank.collectives) steps.insert(one.step);
  const auto share = 1 / static_cast<double>(std::max<size_t>(steps.size(), 1));
  for (const GroupTraffic& group : rank.groups) {
    if (group.kind != "point-to-point" || group.size != pipeline.size ||
        group.description != pipeline.description) {
      continue;
    }
    groups.insert(group.group);
    messages.members = group.members;
    // Integer messages announce shapes. They carry no activations.
    if (!group.is_integer) messages.received += group.received;
  }
  // The messages were counted in all steady steps, even if the digest keeps
  // only the collectives of the first steps.
  const int64_t counted = rank.report.steps.steady;
  messages.received = counted > 0 && messages.received % counted == 0
                          ? messages.received / counted
                          : -1;
  for (const RankCollective& one : rank.collectives) {
    if (!groups.contains(one.group)) continue;
    messages.waiting_ms += share * static_cast<double>(one.exposed_ns) * 1e-6;
  }
  return messages;
}

// Fills in the number of chunks per rank and of micro-batches. Each chunk of
// the model sends its activations to the next chunk and its gradients to the
// previous one. So with v chunks per rank, the first and the last rank receive
// 2v-1 messages per micro-batch, and the other ranks receive 2v.
void CountMicroBatches(const std::vector<StageMessages>& stages,
                       PipelineRow& row) {
  const int64_t end = stages.front().received;
  if (end <= 0 || stages.back().received != end) return;
  int64_t batches = end;
  if (stages.size() > 2) {
    const int64_t middle = stages[1].received;
    for (size_t i = 1; i + 1 < stages.size(); ++i) {
      if (stages[i].received != middle) return;
    }
    batches = middle - end;
    if (batches <= 0 || middle % (2 * batches) != 0) return;
    row.chunks = middle / (2 * batches);
  }
  row.micro_batches = static_cast<double>(batches);
  const auto others = static_cast<double>(stages.size() - 1);
  row.ideal_frac =
      others / (static_cast<double>(row.chunks) * row.micro_batches + others);
}

}  // namespace

std::vector<PipelineRow> PipelinesOf(const std::vector<RankDigest>& ranks,
                                     RankComparison& comparison) {
  std::map<int32_t, const RankDigest*> by_rank;
  for (const RankDigest& rank : ranks) by_rank[rank.report.run.rank] = &rank;
  std::vector<PipelineRow> pipelines;
  for (const RankGroupRow& group : comparison.groups) {
    if (group.parallelism != "pipeline" || group.ranks.size() < 2) continue;
    // Stages follow the order of the group, which may differ from the order of
    // ranks.
    std::vector<int32_t> order =
        MembersOf(MessagesOf(*by_rank[group.ranks[0]], group).members);
    // A message may have the size of its pair instead of that of its group.
    if (group.ranks.size() !=
        std::max(static_cast<size_t>(std::max(group.size, 0)), order.size())) {
      continue;
    }
    if (!std::ranges::is_permutation(order, group.ranks)) order = group.ranks;
    PipelineRow row;
    std::vector<StageMessages> messages;
    for (size_t stage = 0; stage < order.size(); ++stage) {
      const auto of_rank = std::ranges::lower_bound(
          comparison.rows, order[stage], {}, &RankRow::rank);
      of_rank->stage = static_cast<int32_t>(stage);
      messages.push_back(MessagesOf(*by_rank[order[stage]], group));
      row.stages.push_back({.rank = order[stage],
                            .busy_ms = of_rank->busy_ms,
                            .waiting_ms = messages.back().waiting_ms});
      row.bubble_frac += messages.back().waiting_ms /
                         std::max(of_rank->step_ms, 1e-9) /
                         static_cast<double>(order.size());
    }
    CountMicroBatches(messages, row);
    pipelines.push_back(std::move(row));
  }
  return pipelines;
}

}  // namespace stepscope
