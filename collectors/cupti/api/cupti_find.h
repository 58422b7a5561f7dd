// Finds libcupti.so. A process must never load two of them. A library that is
// already loaded therefore comes first, and then the one that belongs to the
// process's LibTorch.
#pragma once

#include <string>

#include "cupti_api.h"

namespace stepscope {

// Searches as CuptiLibrary describes and opens the library for good. Returns
// its handle; null if there is none, with the loader's reason in `failure`. Any
// thread may call it.
void* OpenCupti(const CuptiLibrary& library, std::string* failure);

}  // namespace stepscope
