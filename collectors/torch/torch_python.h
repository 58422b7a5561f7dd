// Python stacks and modules, taken with torch::CapturedTraceback. Nothing here
// needs Python's headers or links its library, because the interpreter of the
// process is found at run time.
//
// The interpreter's lock (GIL): taking a sample waits for it. Samples are
// therefore taken outside of a WriteScope, with none of our locks held, and
// only on threads that the interpreter knows. Those threads have to take the
// GIL anyway before their operator returns to Python. A C++ thread never asks
// for the GIL, because a thread that holds the GIL may be waiting for it.
// Frames are named on the training thread instead of in the background, because
// a thread that waits for the files may hold the GIL.
#pragma once

#include <stepscope/module_hook.h>

#include <string>

#include "torch_stack_decode.h"

namespace stepscope {

// Starts a window and forgets samples of earlier ones. False if no Python
// frames are on the calling thread: the program is then not a Python program,
// and no other function here may be called.
bool OpenPythonSamples(bool with_stack, const ModuleHook& modules);

// Adds a kPythonSlot record to the operator that was just added, except on
// threads that the interpreter does not know. REQUIRES: not inside a
// WriteScope.
void AddPythonSample(bool with_modules);

// Names the frames and modules of the samples taken so far. Takes the
// interpreter's lock. Does nothing on a thread that the interpreter does not
// know.
void NamePythonSamples();

// Returns the samples of the window, including those without names. Later
// samples are dropped.
PythonSamples ClosePythonSamples();

// Returns the path of the innermost module that runs on the calling thread, or
// its class if it is the outermost module. "" if no module runs, or if the
// interpreter does not know the thread. Takes the interpreter's lock. Must not
// be called in the sample step, because the hook would forget that step's
// calls.
std::string OpenModulePath(const ModuleHook& hook);

}  // namespace stepscope
