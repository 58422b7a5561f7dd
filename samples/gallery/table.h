// The gallery's table, for people.
#pragma once

#include <string>

namespace gallery {

// One pattern a line: rule, habit, fix.
std::string ListText();
// All rules: where each shows, and what its timeline comes from in CI.
std::string TableMarkdown();

}  // namespace gallery
