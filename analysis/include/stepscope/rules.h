// The rules as their authors describe them, for people to read.
#pragma once

#include <string>
#include <vector>

namespace stepscope {

// Texts that a rule leaves out are empty.
struct RuleText {
  std::string id;
  std::string question;
  std::string applies;  // "all runs", "runs with a GPU", ...
  std::string needs;    // kinds of events, "steps, op, kernel"
  std::string detect;   // when it fires
  std::string avoid;    // what it stays silent about
  std::string fix_cpp;
  std::string fix_python;
  std::string reference;
};

// All of them, by id.
std::vector<RuleText> RuleTexts();

}  // namespace stepscope
