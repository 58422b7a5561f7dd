// What `stepscope --help` and `stepscope COMMAND --help` print.
#pragma once

namespace stepscope {

extern const char* const kUsage;
extern const char* const kAnalyzeUsage;
extern const char* const kDoctorUsage;

}  // namespace stepscope
