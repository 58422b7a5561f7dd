// Finds libcupti.so. A process must never load two of them: a loaded one comes
// first, then the one that belongs to the process's LibTorch.
#pragma once

#include <string>

#include "cupti_api.h"

namespace stepscope {

// The handle of the library, searched as CuptiLibrary says and opened for good;
// null, with the loader's reason in `failure`, if there is none. Any thread may
// call it.
void* OpenCupti(const CuptiLibrary& library, std::string* failure);

}  // namespace stepscope
