// PageDetails as JSON: the `details` of a page. The page's script alone reads
// it, so its keys may change with any version.
#pragma once

#include <stepscope/page.h>

#include "report/json_text.h"

namespace stepscope {

// The value of a key that the caller has written. `report` tells which drawn
// step shows which example.
void WriteDetails(const PageDetails& details, const Report& report,
                  JsonText& json);

}  // namespace stepscope
