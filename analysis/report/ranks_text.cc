#include "report/ranks_text.h"

#include <algorithm>

#include "report/text_page.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kRanksShown = 16;
constexpr size_t kEndsShown = 6;  // at each end, of more ranks

std::string LineOf(const RankRow& row, bool compared) {
  std::string line = "  " + PadLeft(std::to_string(row.rank), 4) +
                     PadLeft(Number(row.step_ms), 10) +
                     PadLeft(Number(row.busy_ms), 12) +
                     PadLeft(Number(row.exposed_ms), 10);
  if (compared) {
    line += PadLeft(Number(row.waiting_ms), 10) +
            PadLeft(Number(row.late_ms), 8) +
            PadLeft(std::to_string(row.last), 6);
  }
  return line;
}

}  // namespace

std::vector<std::string> RankLines(const Report& report, bool all) {
  const RankComparison& ranks = report.ranks;
  if (ranks.rows.empty()) return {};
  const bool compared = ranks.why_not.empty();
  std::vector<std::string> lines = {
      std::string("ranks, ms per step: step   computing   exposed") +
      (compared ? "   waiting    late  last" : "")};
  std::vector<const RankRow*> rows;
  for (const RankRow& row : ranks.rows) rows.push_back(&row);
  size_t left_out = 0;
  if (!all && rows.size() > kRanksShown) {
    // Both ends tell most: the ranks that wait least, for which the others
    // wait, and those that wait longest.
    std::ranges::stable_sort(
        rows, {}, [](const RankRow* row) { return row->waiting_ms; });
    left_out = rows.size() - 2 * kEndsShown;
    rows.erase(rows.begin() + kEndsShown, rows.end() - kEndsShown);
  }
  for (const RankRow* row : rows) lines.push_back(LineOf(*row, compared));
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
  return lines;
}

void WriteRanks(const RankComparison& ranks, JsonText& json) {
  json.Key("ranks");
  json.Open('{');
  json.Field("why_not", ranks.why_not);
  json.Field("collectives", ranks.collectives);
  json.Field("skewed", ranks.skewed);
  json.Field("unmatched", ranks.unmatched);
  json.Field("steps", ranks.steps);
  json.Field("steps_of_other_shapes", ranks.steps_of_other_shapes);
  json.Field("clock_residual_us", ranks.clock_residual_us);
  json.Field("waiting_ms", ranks.waiting_ms);
  json.Field("waiting_noise_ms", ranks.waiting_noise_ms);
  json.Field("imbalance_ms", ranks.imbalance_ms);
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
  json.Close('}');
}

}  // namespace stepscope
