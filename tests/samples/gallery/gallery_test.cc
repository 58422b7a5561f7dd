// Tests the gallery as a whole: every rule has one row, and the README shows
// the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/rules.h>

#include <string>
#include <vector>

#include "pattern.h"
#include "support/shell.h"
#include "support/temp_folder.h"
#include "table.h"

namespace gallery::gallery_test {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

TEST(GalleryTest, EveryRuleHasOneRow) {
  std::vector<std::string> rows, rules;
  for (const Pattern* pattern : AllPatterns()) rows.emplace_back(pattern->rule);
  for (const Absent& absent : AbsentRules()) rows.emplace_back(absent.rule);
  for (const stepscope::RuleText& rule : stepscope::RuleTexts()) {
    rules.push_back(rule.id);
  }
  EXPECT_THAT(rows, UnorderedElementsAreArray(rules));
}

TEST(GalleryTest, OtherRulesThatMayFireExist) {
  std::vector<std::string> rules;
  for (const stepscope::RuleText& rule : stepscope::RuleTexts()) {
    rules.push_back(rule.id);
  }
  for (const Pattern* pattern : AllPatterns()) {
    for (const Also& also : pattern->also) {
      EXPECT_THAT(rules, testing::Contains(std::string(also.rule)))
          << pattern->rule;
      EXPECT_NE(also.rule, pattern->rule);
      EXPECT_FALSE(also.why.empty()) << pattern->rule;
    }
  }
}

TEST(GalleryTest, TheReadmeShowsTheTable) {
  EXPECT_THAT(stepscope::ReadBytes(GALLERY_README), HasSubstr(TableMarkdown()))
      << "bin/gallery --table prints it";
}

stepscope::Outcome Type(const std::string& words) {
  stepscope::TempFolder folder;
  return stepscope::RunShell("'" GALLERY "' " + words, folder);
}

TEST(GalleryTest, SaysWhatIsWrongWithACommandLine) {
  EXPECT_EQ(Type("").status, 2);
  EXPECT_THAT(Type("").err, HasSubstr("which rule?"));
  EXPECT_THAT(Type("host-sink").err, HasSubstr("no rule is called"));
  EXPECT_THAT(Type("gc-pause").err, HasSubstr("has no program"));
  EXPECT_THAT(Type("fp64-compute --device tpu").err, HasSubstr("cpu or cuda"));
  EXPECT_THAT(Type("fp64-compute --json").err, HasSubstr("needs a value"));
  EXPECT_EQ(Type("--list").status, 0);
}

}  // namespace
}  // namespace gallery::gallery_test
