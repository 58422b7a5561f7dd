// The manual page stepscope(1), made from the commands.
#pragma once

#include <string>

#include "usage/usage_text.h"

namespace stepscope {

// In the macros of man(7).
std::string ManPage(Commands commands);

}  // namespace stepscope
