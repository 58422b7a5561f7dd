// Runs every command on a trace with names that a terminal, a Markdown viewer
// or a spreadsheet would interpret.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::hostile_names_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// ESC, BEL, CSI of C1, right-to-left override, line separator, DEL, isolate and
// zero-width space, as JSON escapes.
constexpr char kOdd[] =
    "a\\u001b[31mb\\u0007c\\u009bd\\u202ee\\u2028f\\u007fg\\u2066h\\u200bi\\nj";

std::string Event(const std::string& category, const std::string& name,
                  int begin_us, int length_us, const std::string& args = "") {
  return "{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name +
         "\", \"pid\": 1, \"tid\": 1, \"ts\": " + std::to_string(begin_us) +
         ", \"dur\": " + std::to_string(length_us) + ", \"args\": {" + args +
         "}}";
}

// Returns eight steps with operators, ranges and a loader with odd names.
std::string OddTrace() {
  const std::string odd = kOdd;
  std::string events;
  const auto add = [&](const std::string& event) {
    events += (events.empty() ? "" : ",\n") + event;
  };
  for (int step = 0; step < 8; ++step) {
    const int at = step * 10'000;
    add(Event("user_annotation", "ProfilerStep#" + std::to_string(step), at,
              10'000));
    add(Event(
        "user_annotation",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" + odd, at,
        4'000));
    add(Event("user_annotation", "mod " + odd, at + 4'000, 5'000));
    add(Event("cpu_op", "aten::x" + odd, at + 4'100, 3'000,
              "\"Input Dims\": [[1, 2]], \"Input type\": [\"f" + odd + "\"]"));
    add(Event("cpu_op", "=cmd|' /C calc'!A0", at + 7'200, 500));
    add(Event("cpu_op", "@SUM(1)", at + 7'800, 500));
  }
  add(Event("odd" + odd, "other", 1, 1));
  return "{\"schemaVersion\": 1, \"traceName\": \"" + odd +
         "\", \"deviceProperties\": [{\"id\": 0, \"name\": \"GPU" + odd +
         "\"}], \"distributedInfo\": {\"backend\": \"b" + odd +
         "\", \"rank\": 0, \"world_size\": 1}, \"traceEvents\": [\n" + events +
         "\n]}\n";
}

// Returns the first text that must not appear in an output unescaped; empty if
// none does.
std::string FirstRaw(std::string_view text) {
  for (std::string_view raw :
       {"\x1b", "\x07", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x80\xa8", "\x7f",
        "\xe2\x81\xa6", "\xe2\x80\x8b"}) {
    const size_t at = text.find(raw);
    if (at == std::string_view::npos) continue;
    return std::string(text.substr(at < 40 ? 0 : at - 40, 80));
  }
  return "";
}

class HostileNamesTest : public testing::Test {
 protected:
  HostileNamesTest() {
    folder_.Write("t.json", OddTrace());
    // A path may contain anything, too.
    folder_.Write("odd\x1b[31m\xc2\x9b.json", OddTrace());
  }
  Outcome Run(const std::string& words) {
    return RunShell("cd '" + folder_.path().string() +
                        "' && '" STEPSCOPE_PROGRAM "' " + words,
                    folder_);
  }

  TempFolder folder_;
};

TEST_F(HostileNamesTest, NoOutputHoldsWhatAViewerActsOn) {
  for (const char* words : {"top t.json",
                            "top --by-shape t.json",
                            "top --format csv t.json",
                            "top --format json t.json",
                            "info t.json",
                            "info --format json t.json",
                            "info odd*",
                            "analyze t.json",
                            "analyze --verbose t.json",
                            "analyze odd*",
                            "analyze --format markdown t.json",
                            "analyze --format json t.json",
                            "analyze t.json odd*",
                            "analyze --format markdown t.json odd*",
                            "compare t.json odd*",
                            "compare --format markdown t.json odd*",
                            "what-if t.json workers=1",
                            "convert -f odd* \"$(printf "
                            "'out\\033[31m.json')\"",
                            "list .",
                            "report odd* -o "
                            "\"$(printf 'r\\033[31m.html')\""}) {
    const Outcome run = Run(words);
    EXPECT_EQ(FirstRaw(run.out), "") << words;
    EXPECT_EQ(FirstRaw(run.err), "") << words;
    EXPECT_NE(run.out + run.err, "") << words;
  }
}

TEST_F(HostileNamesTest, NoErrorHoldsWhatATerminalActsOn) {
  for (const char* words :
       {"info \"$(printf 'no\\033[31msuch')\"",
        "explain \"$(printf '\\033c')\"", "\"$(printf '\\033c')\"",
        "list \"$(printf 'no\\033[1m')\"",
        "analyze t.json --format \"$(printf '\\033c')\"",
        "what-if t.json \"$(printf 'a\\033[1m=1')\"",
        "convert t.json \"$(printf 'o\\033[1m')\""}) {
    const Outcome run = Run(words);
    EXPECT_NE(run.status, 0) << words;
    EXPECT_EQ(FirstRaw(run.err), "") << words;
    EXPECT_THAT(run.err, HasSubstr("\\x1b")) << words;
  }
}

TEST_F(HostileNamesTest, ANameBeginsNoLineOfItsOwn) {
  for (const char* words : {"top t.json", "info t.json", "analyze t.json"}) {
    EXPECT_THAT(Run(words).out, Not(HasSubstr("\nj"))) << words;
  }
}

TEST_F(HostileNamesTest, NoCellOfCsvIsAFormula) {
  const Outcome run = Run("top --format csv t.json");
  EXPECT_THAT(run.out, HasSubstr("\nops,'=cmd|' /C calc'!A0,"));
  EXPECT_THAT(run.out, HasSubstr("\nops,'@SUM(1),"));
}

// After parsing, JSON has the original name.
TEST_F(HostileNamesTest, JsonHasTheNameAsItIs) {
  const Outcome run = Run("top --format json --table ops t.json");
  simdjson::dom::parser parser;
  simdjson::dom::element top;
  ASSERT_FALSE(parser.parse(run.out).get(top));
  std::vector<std::string> names;
  for (const simdjson::dom::element row :
       simdjson::dom::array(top["ops"]["rows"])) {
    names.emplace_back(std::string_view(row["name"]));
  }
  EXPECT_THAT(names, testing::Contains("aten::xa\x1b[31mb\x07"
                                       "c\xc2\x9b"
                                       "d\xe2\x80\xae"
                                       "e\xe2\x80\xa8"
                                       "f\x7fg\xe2\x81\xa6h\xe2\x80\x8bi\nj"));
}

}  // namespace
}  // namespace stepscope::hostile_names_test
