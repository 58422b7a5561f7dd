#include "other_library.h"

#include <nvtx3/nvToolsExt.h>

extern "C" {
__attribute__((visibility("default"))) void OtherLibraryPush(const char* name) {
  nvtxRangePushA(name);
}
__attribute__((visibility("default"))) void OtherLibraryPop() {
  nvtxRangePop();
}
}
