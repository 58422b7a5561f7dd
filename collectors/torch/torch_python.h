// Python stacks and modules, taken by torch::CapturedTraceback. Nothing here
// needs Python's headers or links its library: the interpreter of the process
// is found at run time.
//
// The interpreter's lock (GIL). Taking a sample waits for it, so it happens
// outside of a WriteScope, holds no lock of ours, and only on threads that the
// interpreter knows: these have to take the lock anyway before their operator
// returns to Python. A thread of C++ may be waited for by one that holds the
// lock, so it never asks for it. Frames get their names on the thread that
// trains, not in the background: whoever waits for the files may hold the lock.
#pragma once

#include <stepscope/module_hook.h>

#include <string>

#include "torch_stack_decode.h"

namespace stepscope {

// Starts a window, and forgets samples of earlier ones. False if no Python
// frames are on the calling thread: then this is no program of Python, and
// nothing else may be called.
bool OpenPythonSamples(bool with_stack, const ModuleHook& modules);

// Adds a kPythonSlot record to the operator just added, except on threads that
// the interpreter does not know. REQUIRES: not inside a WriteScope.
void AddPythonSample(bool with_modules);

// Names the frames and modules taken so far. Takes the interpreter's lock; does
// nothing on a thread that the interpreter does not know.
void NamePythonSamples();

// The samples of the window, those without names included. Later samples are
// dropped.
PythonSamples ClosePythonSamples();

// The path of the innermost module that runs on the calling thread, or its
// class if it is the outermost one; "" if there is none, or if the interpreter
// does not know the thread. Takes the interpreter's lock. Not in the sampled
// step, whose calls it would make the hook forget.
std::string OpenModulePath(const ModuleHook& hook);

}  // namespace stepscope
