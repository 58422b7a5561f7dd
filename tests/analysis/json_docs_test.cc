// Checks that docs/json.md describes exactly the keys that the reports write.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/analysis.h>
#include <stepscope/compare.h>
#include <stepscope/summary.h>
#include <stepscope/top.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/edit_settings.h"
#include "support/cpu_loop.h"
#include "timeline/causes.h"

namespace stepscope::json_docs_test {
namespace {

using Keys = std::set<std::string, std::less<>>;

// Objects whose keys are data: causes, phases, settings, names and ordinals.
const Keys kMaps = {"time_split_ms",
                    "time_split_spread_ms",
                    "recording_split_ms",
                    "path_split_ms",
                    "phases_ms",
                    "settings",
                    "memcpy",
                    "names",
                    "events"};

void AddKeys(simdjson::dom::element json, Keys& keys) {
  if (simdjson::dom::array array; !json.get(array)) {
    for (simdjson::dom::element element : array) AddKeys(element, keys);
  }
  simdjson::dom::object object;
  if (json.get(object)) return;
  for (const auto& [key, value] : object) {
    keys.emplace(key);
    if (key == "gpu") {  // keys are ordinals
      for (const auto& [ordinal, device] : simdjson::dom::object(value)) {
        AddKeys(device, keys);
      }
    } else if (key == "memcpy") {  // keys are kinds of memory
      for (const auto& [kinds, copies] : simdjson::dom::object(value)) {
        AddKeys(copies, keys);
      }
    } else if (!kMaps.contains(key)) {
      AddKeys(value, keys);
    }
  }
}

Keys KeysOf(const std::string& text) {
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  Keys keys;
  EXPECT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  AddKeys(json, keys);
  return keys;
}

// Returns the lines of `page` between the heading `title` and the next heading
// of the same or a higher level.
std::string Section(const std::string& page, const std::string& title) {
  const size_t level = title.find(' ');
  std::istringstream lines(page);
  std::string section;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const size_t hashes = line.find_first_not_of('#');
    if (line.starts_with('#') && hashes <= level) inside = line == title;
    if (inside) section += line + "\n";
  }
  return section;
}

// Returns the words in `backquotes`.
Keys Quoted(std::string_view text) {
  Keys words;
  for (size_t at = text.find('`'); at != std::string_view::npos;
       at = text.find('`', at + 1)) {
    const size_t end = text.find('`', at + 1);
    if (end == std::string_view::npos) break;
    words.emplace(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return words;
}

// Returns the words in the first columns of tables, without header rows.
Keys FirstColumn(const std::string& section) {
  Keys words;
  std::istringstream lines(section);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    words.merge(Quoted(line.substr(0, line.find('|', 1))));
  }
  return words;
}

Keys Without(const Keys& all, const Keys& some) {
  Keys rest;
  for (const std::string& key : all) {
    if (!some.contains(key)) rest.insert(key);
  }
  return rest;
}

std::string Page() {
  std::ifstream file(STEPSCOPE_TEST_DATA "/../../docs/json.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A report in which every optional key is present.
Report RichReport() {
  Report report = Analyze(Simulate({.batch_ms = 40, .ops = Ops(40, 6)}).trace);
  report.recording_ms = 1;
  report.recording_split_ms["compute"] = 1;
  report.skipped.push_back({"tf32-off", "no GPU was recorded"});
  report.losses.push_back({.name = "buffer-full"});
  report.memory.push_back({.device = "cpu"});
  report.top_ops.push_back({.name = "triton_poi_fused_add_relu_0"});
  report.modules.push_back({.name = "conv1"});
  report.ranks.rows.push_back({.rank = 0});
  report.ranks.waits.push_back({.rank = 0, .waits_for = 1});
  report.ranks.groups.push_back({.ranks = {0}});
  report.ranks.machines.push_back({.host = "node1"});
  report.ranks.pipelines.push_back({.stages = {{.rank = 0}}});
  report.whole_run.steps = 1;
  report.whole_run.stalls.push_back({.count = 1});
  return report;
}

TEST(JsonDocsTest, EveryKeyOfAnalyzeIsDescribed) {
  const Keys written = KeysOf(ToJson(RichReport()));
  for (const char* key : {"examples", "begin_ns", "clock_offset_us", "category",
                          "peak_bytes", "self_ms_per_step", "detail", "why",
                          "recording_split_ms", "baseline_ms", "cpp"}) {
    EXPECT_TRUE(written.contains(key)) << key << ": the report is not rich";
  }
  const std::string section = Section(Page(), "## analyze");
  EXPECT_EQ(Without(written, Quoted(section)), Keys());
  // Tables of their own describe causes and settings.
  Keys described = FirstColumn(section);
  for (const char* title : {"### Causes", "### Settings"}) {
    described = Without(described, FirstColumn(Section(Page(), title)));
  }
  EXPECT_EQ(Without(described, written), Keys());
}

TEST(JsonDocsTest, EveryCauseIsDescribed) {
  Keys causes;
  for (size_t i = 0; i < kCauses; ++i) {
    causes.emplace(CauseKey(static_cast<Cause>(i)));
  }
  EXPECT_EQ(FirstColumn(Section(Page(), "### Causes")), causes);
}

TEST(JsonDocsTest, EverySettingIsDescribed) {
  const Edit edit = {.workers = 1,
                     .threads = 2,
                     .batch = 4,
                     .channels_last = true,
                     .drop_zero_grad = true,
                     .drop_unused_graph = true,
                     .drop_anomaly = true,
                     .fused_update = 1,
                     .dispatch_ns = 1};
  Keys settings;
  for (int64_t batch_size : {-1, 32}) {
    for (const Setting& setting : SettingsOf(edit, batch_size)) {
      settings.insert(setting.key);
    }
  }
  EXPECT_EQ(FirstColumn(Section(Page(), "### Settings")), settings);
}

TEST(JsonDocsTest, EveryKeyOfCompareIsDescribed) {
  Comparison comparison;
  comparison.causes = comparison.ops = {{.name = "data"}};
  comparison.kernels = {{.name = "triton_poi_fused_add_relu_0"}};
  const Keys written = KeysOf(ToJson(comparison));
  const std::string section = Section(Page(), "## compare");
  EXPECT_EQ(Without(written, Quoted(section)), Keys());
  EXPECT_EQ(Without(FirstColumn(section), written), Keys());
}

TEST(JsonDocsTest, EveryKeyOfTopIsDescribed) {
  TopTable table{.has_device = true, .has_bytes = true};
  table.rows.push_back({.name = "triton_poi_fused_add_relu_0",
                        .shape = "float[4,4]",
                        .code_file = "/tmp/x.py",
                        .code_parameters = "XBLOCK=2"});
  std::vector<TopTable> tables;
  for (const char* name : {"ops", "ranges", "calls", "kernels", "copies"}) {
    table.name = name;
    tables.push_back(table);
  }
  const Keys written = KeysOf(ToJson(tables));
  const std::string section = Section(Page(), "## top");
  EXPECT_EQ(Without(written, Quoted(section)), Keys());
  EXPECT_EQ(Without(FirstColumn(section), written), Keys());
}

TEST(JsonDocsTest, EveryKeyOfInfoIsDescribed) {
  TraceSummary summary;
  summary.run.devices.push_back({});
  summary.devices[0] = {};
  summary.copies["pageable -> device"] = {};
  summary.memory.push_back({.device = "cpu"});
  summary.losses.push_back({.name = "buffer-full"});
  const Keys written = KeysOf(ToJson(summary));
  const std::string section = Section(Page(), "## info");
  EXPECT_EQ(Without(written, Quoted(section)), Keys());
  EXPECT_EQ(Without(FirstColumn(section), written), Keys());
}

// Checks that the tests above find a key that is missing in the page.
TEST(JsonDocsTest, AMissingKeyIsFound) {
  std::string page = Page();
  const size_t row = page.find("\n| `held_back`");
  ASSERT_NE(row, std::string::npos);
  page.erase(row, page.find('\n', row + 1) - row);
  const Keys written = KeysOf(ToJson(RichReport()));
  EXPECT_EQ(Without(written, Quoted(Section(page, "## analyze"))),
            Keys{"held_back"});
}

// No report writes version 1's keys, and the table names their replacements.
TEST(JsonDocsTest, RenamedKeysAreNotWritten) {
  const std::string section = Section(Page(), "## Version 1 to version 2");
  Keys written = KeysOf(ToJson(RichReport()));
  written.merge(KeysOf(ToJson(Comparison())));
  int rows = 0;
  std::istringstream lines(section);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| analyze") && !line.starts_with("| compare")) {
      continue;
    }
    ++rows;
    const size_t old_key = line.find('|', 1);
    const size_t new_key = line.find('|', old_key + 1);
    const Keys before = Quoted(line.substr(old_key, new_key - old_key));
    const Keys after = Quoted(line.substr(new_key));
    ASSERT_FALSE(before.empty()) << line;
    ASSERT_FALSE(after.empty()) << line;
    EXPECT_FALSE(written.contains(*before.begin())) << line;
    EXPECT_TRUE(written.contains(*after.begin())) << line;
  }
  EXPECT_GE(rows, 16);
}

}  // namespace
}  // namespace stepscope::json_docs_test
