// A library that uses NVTX with its own function table, as torch's libraries
// do.
#pragma once

extern "C" {
void OtherLibraryPush(const char* name);
void OtherLibraryPop();
}
