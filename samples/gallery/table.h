// The gallery's tables, for people.
#pragma once

#include <string>

namespace gallery {

// Returns one line per pattern: rule, habit, fix.
std::string ListText();
// Returns a row for every rule: where it shows, and where its timeline comes
// from in CI.
std::string TableMarkdown();

}  // namespace gallery
