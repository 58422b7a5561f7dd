// A library that uses NVTX, as torch's do: it has its own table of functions.
#pragma once

extern "C" {
void OtherLibraryPush(const char* name);
void OtherLibraryPop();
}
