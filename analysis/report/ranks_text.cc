#include "report/ranks_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "report/layout/text_page.h"
#include "report/layout/text_table.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kRanksShown = 16;
constexpr size_t kEndsShown = 6;  // at each end, if there are more ranks
constexpr size_t kRanksNamedOfGroup = 8;
constexpr size_t kHostsNamedOfGroup = 4;
constexpr size_t kRankColumns = 6;
constexpr size_t kGroupColumns = 42;
// Waits below this share of the step are not mentioned. Findings have the same
// limit.
constexpr double kLeastWaitShare = 0.01;

void AddRow(const RankRow& row, bool compared, TextTable& table) {
  std::vector<std::string> cells = {Number(row.step_ms), Number(row.busy_ms),
                                    Number(row.exposed_ms)};
  if (compared) {
    cells.insert(cells.end(), {Number(row.waiting_ms), Number(row.late_ms),
                               std::to_string(row.last)});
  }
  table.Add("  " + PadLeft(std::to_string(row.rank), 4), std::move(cells));
}

// "ranks 0, 1 and 30 more"
std::string RanksInWords(const std::vector<int32_t>& ranks) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(ranks.size(), kRanksNamedOfGroup); ++i) {
    names.push_back(std::to_string(ranks[i]));
  }
  const size_t more = ranks.size() - names.size();
  return (ranks.size() == 1 ? "rank " : "ranks ") + Listed(names) +
         (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

// What the ranks of a group do together and, in brackets, how the program
// describes the group.
std::string KindOf(const RankGroupRow& group) {
  std::string text = group.parallelism.empty() ? "unknown" : group.parallelism;
  if (!group.description.empty()) text += " (" + group.description + ")";
  return text;
}

std::string RateCell(double gb_per_s) {
  return gb_per_s > 0 ? Number(gb_per_s) : "-";
}

void AddGroup(const std::string& name, const RankGroupRow& group, bool machines,
              TextTable& table) {
  std::vector<std::string> cells = {
      Number(group.exposed_ms), Number(group.total_ms),
      group.bytes > 0 ? Number(group.bytes * 1e-6) : "-",
      RateCell(group.gb_per_s)};
  if (machines) cells.push_back(std::to_string(group.hosts));
  table.Add("  " + name, std::move(cells));
}

// The machines of some ranks: " on node1 and node2".
std::string OnMachines(const RankComparison& ranks, const RankGroupRow& group) {
  std::vector<std::string> hosts;
  for (const RankRow& row : ranks.rows) {
    if (std::ranges::count(group.ranks, row.rank) > 0 &&
        std::ranges::count(hosts, row.host) == 0) {
      hosts.push_back(row.host);
    }
  }
  // With one machine there is nothing to tell apart.
  if (ranks.machines.empty() || hosts.size() > kHostsNamedOfGroup) return "";
  return " on " + ListedWithAnd(hosts);
}

// A line for groups with the same purpose: the machine that most of them wait
// for. Empty if the waits are too short to matter.
std::string LateHostLine(const RankComparison& ranks,
                         const std::vector<const RankGroupRow*>& groups) {
  struct Late {
    int64_t groups = 0, last = 0, skewed = 0;
  };
  std::map<std::string, Late> hosts;
  for (const RankGroupRow* group : groups) {
    if (group->late_host.empty() ||
        group->waiting_ms < kLeastWaitShare * ranks.step_ms) {
      continue;
    }
    Late& late = hosts[group->late_host];
    ++late.groups;
    late.last += group->late_host_last;
    late.skewed += group->skewed;
  }
  if (hosts.empty()) return "";
  const auto& [host, late] = *std::ranges::max_element(
      hosts, {}, [](const auto& entry) { return entry.second.groups; });
  std::string line = "    ";
  if (groups.size() > 1) {
    line += std::to_string(late.groups) + " of the groups ";
  }
  return line + (late.groups > 1 ? "wait" : "waits") + " for ranks of " + host +
         " at " + std::to_string(late.last) + " of " +
         Count(late.skewed, "collective") + " with skewed arrivals";
}

// Groups with the same purpose share a line: their mean, and the slowest one.
std::vector<std::string> GroupLines(const RankComparison& ranks, bool all,
                                    int width) {
  if (ranks.groups.empty()) return {};
  const bool machines = !ranks.machines.empty();
  std::vector<TableColumn> columns = {
      {"exposed", 9}, {"total", 8}, {"MB", 8}, {"GB/s", 8}};
  if (machines) columns.push_back({"machines", 10, /*spare=*/1});
  TextTable table("groups of ranks, ms per step and rank", kGroupColumns,
                  std::move(columns));
  std::vector<std::pair<std::string, std::vector<const RankGroupRow*>>> kinds;
  for (const RankGroupRow& group : ranks.groups) {
    // Groups have the same purpose if their kind, size and number of machines
    // are the same.
    const std::string kind = KindOf(group) + std::to_string(group.size) + " " +
                             std::to_string(group.hosts);
    auto known = std::ranges::find(
        kinds, kind, [](const auto& entry) { return entry.first; });
    if (known == kinds.end()) known = kinds.insert(kinds.end(), {kind, {}});
    known->second.push_back(&group);
  }
  for (const auto& [kind, groups] : kinds) {
    const RankGroupRow& first = *groups[0];
    RankGroupRow mean = {.hosts = first.hosts};
    std::vector<const RankGroupRow*> rated;
    for (const RankGroupRow* group : groups) {
      const double share = 1 / static_cast<double>(groups.size());
      mean.exposed_ms += share * group->exposed_ms;
      mean.total_ms += share * group->total_ms;
      mean.bytes += share * group->bytes;
      if (group->gb_per_s > 0) rated.push_back(group);
    }
    // Shows the median of the known rates. The slowest group is named below.
    std::ranges::stable_sort(rated, {}, &RankGroupRow::gb_per_s);
    if (!rated.empty()) mean.gb_per_s = rated[rated.size() / 2]->gb_per_s;
    const std::string size = first.size > 0
                                 ? std::to_string(first.size)
                                 : std::to_string(first.ranks.size());
    AddGroup(KindOf(first) + ", " +
                 Count(static_cast<int64_t>(groups.size()), "group") + " of " +
                 size,
             mean, machines, table);
    if (rated.size() > 1) {
      table.AddText("    slowest: " + RanksInWords(rated[0]->ranks) +
                    OnMachines(ranks, *rated[0]) + " at " +
                    Bandwidth(rated[0]->gb_per_s));
    }
    const std::string late = LateHostLine(ranks, groups);
    if (!late.empty()) table.AddText(late);
    // If the program itself described the group, KindOf() has said so already.
    if (!first.parallelism.empty() && first.evidence.find("described") != 0) {
      table.AddText("    probably " + first.parallelism +
                    " parallelism, judging by its traffic: " + first.evidence);
    }
    if (!all || groups.size() < 2) continue;
    for (const RankGroupRow* group : groups) {
      AddGroup("  " + RanksInWords(group->ranks), *group, machines, table);
    }
  }
  for (const PipelineRow& pipeline : ranks.pipelines) {
    std::vector<int32_t> stages;
    for (const PipelineStage& stage : pipeline.stages) {
      stages.push_back(stage.rank);
    }
    std::string line = "  pipeline of " + RanksInWords(stages) +
                       ": stages wait for each other " +
                       Percent(pipeline.bubble_frac) + " of the step";
    if (pipeline.ideal_frac > 0) {
      line += "; at least " + Percent(pipeline.ideal_frac) + " with " +
              Times(pipeline.micro_batches) + " micro-batches";
    }
    table.AddText(line);
    // Shows one pipeline as an example of all; --verbose shows all of them.
    if (!all) break;
  }
  return table.Lines(width);
}

// One line per machine, the one that is waited for most first.
std::vector<std::string> MachineLines(const RankComparison& ranks, bool all,
                                      int width) {
  if (ranks.machines.empty()) return {};
  const auto recurs = [&](const MachineRow& machine) {
    return machine.recurs &&
           machine.waited_for_ms >= kLeastWaitShare * ranks.step_ms;
  };
  std::vector<TableColumn> columns = {
      {"waited for", 12}, {"last", 8}, {"of", 8}, {"GB/s", 8}, {"others", 8}};
  const bool any_recurs = std::ranges::any_of(ranks.machines, recurs);
  if (any_recurs) columns.push_back({"", 11});
  TextTable table("machines", kGroupColumns, std::move(columns));
  const size_t shown = all ? ranks.machines.size()
                           : std::min(ranks.machines.size(), kRanksShown);
  for (size_t i = 0; i < shown; ++i) {
    const MachineRow& machine = ranks.machines[i];
    std::vector<std::string> cells = {
        Number(machine.waited_for_ms), std::to_string(machine.last),
        std::to_string(machine.skewed), RateCell(machine.inside_gb_per_s),
        RateCell(machine.across_gb_per_s)};
    if (any_recurs) cells.push_back(recurs(machine) ? "recurring" : "");
    table.Add("  " + machine.host + ", " + RanksInWords(machine.ranks),
              std::move(cells));
  }
  std::vector<std::string> lines = table.Lines(width);
  if (shown < ranks.machines.size()) {
    lines.push_back(
        "  ... " +
        Count(static_cast<int64_t>(ranks.machines.size() - shown), "machine") +
        " more (--verbose shows all)");
  }
  lines.push_back(
      "  waited for: ms per step, by a rank of another machine; last: at "
      "collectives with skewed arrivals");
  lines.push_back("  GB/s: among its ranks, and with those of other machines");
  return lines;
}

}  // namespace

std::vector<std::string> RankLines(const Report& report, bool all, int width) {
  const RankComparison& ranks = report.ranks;
  if (ranks.rows.empty()) return {};
  const bool compared = ranks.why_not.empty();
  std::vector<TableColumn> columns = {{"step", 10},
                                      {"computing", 12, /*spare=*/1},
                                      {"exposed", 10, /*spare=*/2}};
  if (compared) {
    columns.insert(columns.end(), {{"waiting", 10}, {"late", 8}, {"last", 6}});
  }
  TextTable table("ranks, ms per step", kRankColumns, std::move(columns));
  std::vector<const RankRow*> rows;
  for (const RankRow& row : ranks.rows) rows.push_back(&row);
  size_t left_out = 0;
  if (!all && rows.size() > kRanksShown) {
    // Shows both ends of the order: the ranks that wait least, for which the
    // others wait, and the ranks that wait longest.
    std::ranges::stable_sort(
        rows, {}, [](const RankRow* row) { return row->waiting_ms; });
    left_out = rows.size() - 2 * kEndsShown;
    rows.erase(rows.begin() + kEndsShown, rows.end() - kEndsShown);
  }
  for (const RankRow* row : rows) AddRow(*row, compared, table);
  std::vector<std::string> lines = table.Lines(width);
  if (left_out > 0) {
    lines.push_back("  ... " + Count(static_cast<int64_t>(left_out), "rank") +
                    " in between (--verbose shows all)");
  }
  if (compared) {
    lines.push_back("  late: time after the arrival of the median rank");
    lines.push_back("  last: how often it arrives last at the " +
                    Count(ranks.skewed, "collective") +
                    " with skewed arrivals");
  } else {
    lines.push_back("  not compared: " + ranks.why_not);
  }
  if (!ranks.unmatched_ranks.empty()) {
    std::vector<std::string> names;
    for (int32_t rank : ranks.unmatched_ranks) {
      names.push_back(std::to_string(rank));
    }
    lines.push_back(
        std::string(names.size() == 1 ? "  rank " : "  ranks ") +
        Listed(names) + (names.size() == 1 ? " is" : " are") +
        " not compared: no collective has the step and the place of one of "
        "another rank");
  }
  for (std::string& line : GroupLines(ranks, all, width)) {
    lines.push_back(std::move(line));
  }
  for (std::string& line : MachineLines(ranks, all, width)) {
    lines.push_back(std::move(line));
  }
  return lines;
}

namespace {

void WriteGroups(const RankComparison& ranks, JsonText& json) {
  json.Key("groups");
  json.Open('[');
  for (const RankGroupRow& group : ranks.groups) {
    json.Open('{');
    json.Texts("ranks", group.ranks);
    json.Field("name", group.name);
    json.Field("description", group.description);
    json.Field("size", group.size);
    json.Field("parallelism", group.parallelism);
    json.Field("evidence", group.evidence);
    json.Field("collectives", group.collectives);
    json.Field("total_ms", group.total_ms);
    json.Field("exposed_ms", group.exposed_ms);
    json.Field("waiting_ms", group.waiting_ms);
    json.Field("bytes", group.bytes);
    json.Field("gb_per_s", group.gb_per_s);
    json.Field("last_rank", group.last_rank);
    json.Field("last", group.last);
    json.Field("hosts", group.hosts);
    json.Field("skewed", group.skewed);
    json.Field("late_host", group.late_host);
    json.Field("late_host_last", group.late_host_last);
    json.Close('}');
  }
  json.Close(']');
  json.Key("machines");
  json.Open('[');
  for (const MachineRow& machine : ranks.machines) {
    json.Open('{');
    json.Field("host", machine.host);
    json.Texts("ranks", machine.ranks);
    json.Field("waited_for_ms", machine.waited_for_ms);
    json.Field("skewed", machine.skewed);
    json.Field("last", machine.last);
    json.Field("recurs", machine.recurs);
    json.Field("inside_gb_per_s", machine.inside_gb_per_s);
    json.Field("across_gb_per_s", machine.across_gb_per_s);
    json.Close('}');
  }
  json.Close(']');
  json.Key("pipelines");
  json.Open('[');
  for (const PipelineRow& pipeline : ranks.pipelines) {
    json.Open('{');
    json.Field("micro_batches", pipeline.micro_batches);
    json.Field("chunks", pipeline.chunks);
    json.Field("bubble_frac", pipeline.bubble_frac);
    json.Field("ideal_frac", pipeline.ideal_frac);
    json.Key("stages");
    json.Open('[');
    for (const PipelineStage& stage : pipeline.stages) {
      json.Open('{');
      json.Field("rank", stage.rank);
      json.Field("busy_ms", stage.busy_ms);
      json.Field("waiting_ms", stage.waiting_ms);
      json.Close('}');
    }
    json.Close(']');
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

void WriteRanks(const RankComparison& ranks, JsonText& json) {
  json.Key("ranks");
  json.Open('{');
  json.Field("why_not", ranks.why_not);
  json.Field("collectives", ranks.collectives);
  json.Field("skewed", ranks.skewed);
  json.Field("unmatched", ranks.unmatched);
  json.Field("partial", ranks.partial);
  json.Texts("unmatched_ranks", ranks.unmatched_ranks);
  json.Field("steps", ranks.steps);
  json.Field("steps_of_other_shapes", ranks.steps_of_other_shapes);
  json.Field("clock_residual_us", ranks.clock_residual_us);
  json.Field("waiting_ms", ranks.waiting_ms);
  json.Field("waiting_noise_ms", ranks.waiting_noise_ms);
  json.Field("imbalance_ms", ranks.imbalance_ms);
  json.Field("start_wait_ms", ranks.start_wait_ms);
  json.Field("starts_apart_ms", ranks.starts_apart_ms);
  json.Key("rows");
  json.Open('[');
  for (const RankRow& row : ranks.rows) {
    json.Open('{');
    json.Field("rank", row.rank);
    json.Field("source", row.source);
    json.Field("step_ms", row.step_ms);
    json.Field("noise_ms", row.noise_ms);
    json.Field("host_noise_ms", row.host_noise_ms);
    json.Field("busy_ms", row.busy_ms);
    json.Field("exposed_ms", row.exposed_ms);
    json.Field("waiting_ms", row.waiting_ms);
    json.Field("late_ms", row.late_ms);
    json.Field("host_ms", row.host_ms);
    json.Field("loading_ms", row.loading_ms);
    json.Field("last", row.last);
    json.Field("clock_offset_us", row.clock_offset_us);
    json.Field("host", row.host);
    json.Field("sm_clock_mhz", row.sm_clock_mhz);
    json.Field("kernels", row.kernels);
    json.Field("stage", row.stage);
    json.Key("time_split_ms");
    json.Open('{');
    for (const auto& [cause, ms] : row.time_split_ms) json.Field(cause, ms);
    json.Close('}');
    json.Close('}');
  }
  json.Close(']');
  json.Key("waits");
  json.Open('[');
  for (const RankWait& wait : ranks.waits) {
    json.Open('{');
    json.Field("rank", wait.rank);
    json.Field("waits_for", wait.waits_for);
    json.Field("ms", wait.ms);
    json.Close('}');
  }
  json.Close(']');
  WriteGroups(ranks, json);
  json.Key("mended");
  json.Open('{');
  json.Field("why_not", ranks.why_not_mended);
  json.Field("rank", ranks.mended.rank);
  json.Field("balanced", ranks.mended.balanced);
  json.Field("before_ms", ranks.mended.before_ms);
  json.Field("after_ms", ranks.mended.after_ms);
  json.Field("low_ms", ranks.mended.low_ms);
  json.Field("high_ms", ranks.mended.high_ms);
  json.Field("next_rank", ranks.mended.next_rank);
  json.Close('}');
  json.Close('}');
}

}  // namespace stepscope
