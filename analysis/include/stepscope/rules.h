// The descriptions of all rules, as `stepscope rules` and `stepscope explain`
// print them.
#pragma once

#include <string>
#include <vector>

namespace stepscope {

// A rule described for people. Texts that do not apply are empty.
struct RuleText {
  std::string id;        // "sync-data-loading"
  std::string question;  // what the rule asks, one sentence
  std::string applies;   // "all runs", "runs with a GPU", ...
  std::string needs;     // data it needs: "steps, op events, kernel events"
  std::string detect;    // when it fires, with thresholds and their sources
  std::string avoid;     // when it stays silent on purpose
  std::string fix_cpp;
  std::string fix_python;
  std::string reference;  // guide and section
};

// All rules, sorted by id. Never fails; any thread.
std::vector<RuleText> RuleTexts();

}  // namespace stepscope
