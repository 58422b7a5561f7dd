// What `stepscope --help` and `stepscope analyze --help` print.
#pragma once

namespace stepscope {

extern const char* const kUsage;
extern const char* const kAnalyzeUsage;

}  // namespace stepscope
