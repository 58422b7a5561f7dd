// PageDetails as JSON: the `details` of a page. Only the page's script reads
// this JSON, so its keys may change with any version.
#pragma once

#include <stepscope/page.h>

#include "report/json_text.h"

namespace stepscope {

// Writes the value of a key that the caller has written. `report` is needed to
// find which drawn step shows which example.
void WriteDetails(const PageDetails& details, const Report& report,
                  JsonText& json);

}  // namespace stepscope
