// Where libcupti.so is. A process must never have two copies of it: the one
// that is there already comes first, then the one made for the torch beside it.
#pragma once

#include <string>

#include "cupti_api.h"

namespace stepscope {

// The handle of the library that CuptiLibrary's comment describes, opened for
// as long as the process lives; null with the loader's reason in `failure`
// where there is none. Any thread may call it.
void* OpenCupti(const CuptiLibrary& library, std::string* failure);

}  // namespace stepscope
