#include <stepscope/version.h>

// Two macros, because the preprocessor does not expand an operand of #.
#define STEPSCOPE_TEXT_OF(number) #number
#define STEPSCOPE_TEXT(number) STEPSCOPE_TEXT_OF(number)

namespace stepscope {

const char* Version() noexcept {
  return STEPSCOPE_TEXT(STEPSCOPE_VERSION_MAJOR) "." STEPSCOPE_TEXT(
      STEPSCOPE_VERSION_MINOR) "." STEPSCOPE_TEXT(STEPSCOPE_VERSION_PATCH);
}

}  // namespace stepscope
