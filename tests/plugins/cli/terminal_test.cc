// Tests that no output line is wider than the terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope::terminal_test {
namespace {

using testing::HasSubstr;

// Returns what `stepscope <words>` shows on a terminal with `columns` columns.
std::string OnTerminal(const std::string& words, unsigned short columns) {
  const winsize size = {50, columns, 0, 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    const std::string command = "NO_COLOR=1 '" STEPSCOPE_PROGRAM "' " + words;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string shown;
  char block[4096];
  // read() fails with EIO when the child has ended.
  for (ssize_t count; (count = read(terminal, block, sizeof(block))) > 0;)
    shown.append(block, static_cast<size_t>(count));
  close(terminal);
  waitpid(child, nullptr, 0);
  std::erase(shown, '\r');
  return shown;
}

size_t Columns(std::string_view line) {
  size_t columns = 0;
  for (const char c : line)
    columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

// Returns the lines of `shown` that are wider than `columns`. Lines with a word
// of more than half the width are allowed, because a path must stay whole to be
// copied.
std::vector<std::string> TooWide(const std::string& shown, size_t columns) {
  std::vector<std::string> wide;
  for (size_t at = 0; at < shown.size();) {
    const size_t end = std::min(shown.find('\n', at), shown.size());
    const std::string line = shown.substr(at, end - at);
    at = end + 1;
    std::istringstream words(line);
    bool has_long_word = false;
    for (std::string word; words >> word;)
      has_long_word |= Columns(word) > columns / 2;
    if (Columns(line) > columns && !has_long_word) wide.push_back(line);
  }
  return wide;
}

class TerminalTest : public testing::TestWithParam<unsigned short> {};

TEST_P(TerminalTest, NoLineIsWider) {
  const std::string trace =
      STEPSCOPE_TEST_DATA "/traces/resnet50_v100_workers0.pt.trace.json.gz";
  for (const std::string& words :
       {std::string("--help"), std::string("analyze --help"),
        std::string("help what-if convert completion doctor"),
        std::string("rules"), std::string("explain sync-data-loading"),
        std::string("doctor --python /nowhere"), "info " + trace,
        "top --limit 3 " + trace, "analyze " + trace,
        "compare " + trace + " " + trace, "what-if " + trace + " workers=1",
        std::string("top"), std::string("explain no-such-rule"),
        std::string("frobnicate")}) {
    const std::string shown = OnTerminal(words, GetParam());
    EXPECT_NE(shown, "") << words;
    EXPECT_THAT(TooWide(shown, GetParam()), testing::IsEmpty()) << words;
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, TerminalTest, testing::Values(60, 80, 132));

TEST(TerminalTest, ADamagedFileIsNamedOnce) {
  const std::string trace =
      STEPSCOPE_TEST_DATA "/traces/resnet50_v100_workers0.pt.trace.json.gz";
  const std::string cut = testing::TempDir() + "terminal_cut.json.gz";
  const std::string make = "head -c 200000 " + trace + " > " + cut;
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string shown = OnTerminal("analyze " + cut, 80);
  const size_t first = shown.find("truncated");
  ASSERT_NE(first, std::string::npos) << shown;
  EXPECT_EQ(shown.find("truncated", first + 1), std::string::npos) << shown;
  // Standard error goes to a terminal, the report to a file.
  EXPECT_THAT(OnTerminal("analyze -o /dev/null " + cut, 80),
              HasSubstr("is truncated"));
}

TEST(TerminalTest, AFileOrAPipeKeepsItsLines) {
  EXPECT_THAT(OnTerminal("rules | cat", 40),
              HasSubstr("\nsync-data-loading         Do"));
}

}  // namespace
}  // namespace stepscope::terminal_test
