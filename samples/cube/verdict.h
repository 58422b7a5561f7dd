// Judge: what to call what two flags do together. Words about one of them alone
// are said only where its interval leaves no doubt: medians within the noise
// would name a help or a cost that nobody measured.
#pragma once

#include "effects.h"

namespace cube {

// From all of `pair` but its `together`.
Together Judge(const Pair& pair);

}  // namespace cube
