// Tests help, completion and the manual page. All are made from one table, so
// each must have every command and option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::usage_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSubsetOf;
using testing::Not;
using testing::UnorderedElementsAre;

class UsageTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' " + words, folder_);
  }

  std::string Script(const std::string& shell) {
    const Outcome run = Run("completion " + shell);
    EXPECT_EQ(run.status, 0) << run.err;
    return folder_.Write("script." + shell, run.out);
  }

  // Returns the words that bash offers after `line`. Blanks separate its words,
  // and the last word is being typed.
  std::set<std::string> InBash(const std::string& line) {
    const Outcome run = RunShell(
        "bash -c 'source \"$1\"; shift; COMP_WORDS=(\"$@\"); "
        "COMP_CWORD=$(($# - 1)); _stepscope; printf \"%s\\n\" "
        "\"${COMPREPLY[@]}\"' bash '" +
            Script("bash") + "' " + line,
        folder_);
    EXPECT_EQ(run.err, "") << line;
    return Lines(run.out);
  }

  // Returns the words that zsh offers when Tab is pressed at the end of `line`,
  // and "line:" followed by the resulting line and a bar.
  std::set<std::string> InZsh(const std::string& line) {
    const Outcome run = RunShell("timeout 60 zsh -f '" STEPSCOPE_TESTS_DIR
                                 "/plugins/cli/zsh_offers.zsh' '" +
                                     Script("zsh") + "' '" + line + "'",
                                 folder_);
    EXPECT_EQ(run.status, 0) << line;
    EXPECT_EQ(run.err, "") << line;
    return Lines(run.out);
  }

  bool Has(const std::string& program) {
    return RunShell("command -v " + program, folder_).status == 0;
  }

  static std::set<std::string> Lines(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      if (!line.empty()) lines.insert(line);
    return lines;
  }

  std::set<std::string> Commands() {
    std::set<std::string> names;
    const std::string help = Run("--help").out;
    const std::regex row("\n  ([a-z][a-z-]*)");
    for (std::sregex_iterator it(help.begin(), help.end(), row), end; it != end;
         ++it) {
      names.insert((*it)[1]);
    }
    return names;
  }

  TempFolder folder_;
};

TEST_F(UsageTest, HelpListsTheCommandsAndNamesTheirOptions) {
  EXPECT_THAT(
      (std::set<std::string>{"analyze", "compare", "what-if", "rules",
                             "explain", "list", "info", "top", "convert", "run",
                             "doctor", "help", "completion"}),
      IsSubsetOf(Commands()));
  const std::string usage = Run("help analyze").out;
  EXPECT_THAT(usage, HasSubstr("Usage: stepscope analyze [options] PATH...\n"));
  EXPECT_THAT(usage, HasSubstr("\n  --format text|json|markdown|html\n"));
  EXPECT_THAT(usage, HasSubstr("\n  --output FILE, -o FILE  write"));
  EXPECT_THAT(usage, HasSubstr("\n  --help, -h"));
  EXPECT_THAT(usage, HasSubstr("\nExit status: 0 "));
}

TEST_F(UsageTest, ACommandOfThePythonPackageSaysWhereItIs) {
  const std::string help = Run("--help").out;
  const size_t package = help.find("\nOnly with the Python package:\n");
  ASSERT_NE(package, std::string::npos) << help;
  EXPECT_LT(help.find("\n  analyze "), package);
  for (const char* command : {"view", "run", "mcp", "catalogue"}) {
    EXPECT_GT(help.find(std::string("\n  ") + command + " "), package)
        << command;
  }
  const Outcome run = Run("run train.py");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("run is a command of the Python package"));
}

TEST_F(UsageTest, BashCompletesCommandsOptionsValuesRulesAndFiles) {
  if (!Has("bash")) GTEST_SKIP() << "no bash here";
  EXPECT_THAT(InBash("stepscope wh"), UnorderedElementsAre("what-if"));
  EXPECT_THAT(InBash("stepscope ''"), testing::IsSupersetOf(Commands()));
  EXPECT_THAT(InBash("stepscope analyze --f"),
              UnorderedElementsAre("--format", "--fail-on"));
  EXPECT_THAT(InBash("stepscope analyze --format ''"),
              UnorderedElementsAre("text", "json", "markdown", "html"));
  EXPECT_THAT(InBash("stepscope analyze --format = j"),
              UnorderedElementsAre("json"));
  EXPECT_THAT(InBash("stepscope explain sync-data-"),
              UnorderedElementsAre("sync-data-loading"));
  EXPECT_THAT(InBash("stepscope help comp"),
              UnorderedElementsAre("compare", "completion"));
  EXPECT_THAT(InBash("stepscope what-if x optimizer"),
              UnorderedElementsAre("optimizer_step="));
  const std::string file = folder_.Write("a-trace.json", "");
  EXPECT_THAT(InBash("stepscope info " + folder_.At("a-tr")),
              UnorderedElementsAre(file));
  EXPECT_THAT(InBash("stepscope top -o " + folder_.At("a-tr")),
              UnorderedElementsAre(file));
}

TEST_F(UsageTest, ZshCompletesCommandsOptionsValuesRulesAndFiles) {
  if (!Has("zsh")) GTEST_SKIP() << "no zsh here";
  EXPECT_THAT(InZsh("stepscope wh"),
              UnorderedElementsAre("what-if", "line:stepscope what-if |"));
  EXPECT_THAT(InZsh("stepscope "), testing::IsSupersetOf(Commands()));
  EXPECT_THAT(InZsh("stepscope analyze --f"),
              UnorderedElementsAre("--format", "--fail-on",
                                   "line:stepscope analyze --f|"));
  EXPECT_THAT(InZsh("stepscope analyze --format="),
              testing::IsSupersetOf({"text", "json", "markdown", "html"}));
  EXPECT_THAT(InZsh("stepscope explain sync-data-"),
              Contains("sync-data-loading"));
  EXPECT_THAT(InZsh("stepscope help comp"),
              testing::IsSupersetOf({"compare", "completion"}));
  // A setting still needs its value.
  EXPECT_THAT(
      InZsh("stepscope what-if x optimizer"),
      UnorderedElementsAre("optimizer_step=",
                           "line:stepscope what-if x optimizer_step=|"));
  folder_.Write("a-trace.json", "");
  const std::string line = "stepscope info " + folder_.At("a-tr");
  EXPECT_THAT(InZsh(line), Contains("line:stepscope info " +
                                    folder_.At("a-trace.json") + " |"));
  EXPECT_THAT(InZsh("stepscope top -o " + folder_.At("a-tr")),
              Contains("a-trace.json"));
}

TEST_F(UsageTest, TheScriptsOfTheOtherShellsHaveEveryCommandAndAreValid) {
  for (const std::string shell : {"zsh", "fish"}) {
    const std::string script = ReadBytes(Script(shell));
    for (const std::string& command : Commands())
      EXPECT_THAT(script, HasSubstr(command)) << shell;
    EXPECT_THAT(script, HasSubstr("sync-data-loading")) << shell;
    if (Has(shell)) {
      const Outcome run =
          RunShell(shell + " -n " + folder_.At("script." + shell), folder_);
      EXPECT_EQ(run.status, 0) << run.err;
    }
  }
  if (!Has("fish")) GTEST_SKIP() << "no fish here";
  const Outcome run =
      RunShell("fish -c 'source " + folder_.At("script.fish") +
                   "; complete -C \"stepscope analyze --format \"'",
               folder_);
  EXPECT_THAT(run.out, testing::MatchesRegex("html\t[^\n]*\njson\t[^\n]*\n"
                                             "markdown\t[^\n]*\n"
                                             "text\t[^\n]*\n"));
}

TEST_F(UsageTest, WrongShellsAreRefused) {
  const Outcome run = Run("completion tcsh");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("bash|zsh|fish"));
}

TEST_F(UsageTest, TheManualPageHasEveryCommandAndOption) {
  const Outcome page = Run("help --man");
  EXPECT_EQ(page.status, 0);
  EXPECT_THAT(page.out, HasSubstr(".TH STEPSCOPE 1 "));
  EXPECT_THAT(page.out, HasSubstr(".B \\-\\-fail\\-over N%\n"));
  for (const std::string& command : Commands()) {
    std::string escaped;
    for (const char c : command)
      escaped += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_THAT(page.out, HasSubstr("\n.SS stepscope " + escaped));
  }
  if (!Has("man")) GTEST_SKIP() << "no man here";
  const Outcome shown =
      RunShell("{ '" STEPSCOPE_PROGRAM "' help --man | MANWIDTH=80 man -l -; }",
               folder_);
  EXPECT_EQ(shown.err, "");
  EXPECT_THAT(shown.out, HasSubstr("--fail-over"));
}

}  // namespace
}  // namespace stepscope::usage_test
