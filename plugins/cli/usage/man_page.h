// The manual page stepscope(1), made from the commands.
#pragma once

#include <string>

#include "usage/usage_text.h"

namespace stepscope {

// Returns the page, written with the macros of man(7).
std::string ManPage(Commands commands);

}  // namespace stepscope
