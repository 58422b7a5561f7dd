// Converts stack frames from the form of recorders ("train.py(31): step") to
// the form of reports ("train.py:31 in step"). The functions have no state.
#pragma once

#include <stepscope/trace.h>

#include <span>
#include <string>
#include <string_view>

namespace stepscope {

// True for frames of PyTorch, its C++ libraries, installed packages and the
// interpreter ("<built-in method ...>", the standard library).
bool IsFrameworkFrame(std::string_view frame);

// Returns the frame in words. If the file's path starts with `folder`
// ("/home/me/project/"), that part is left out. A frame that is not of the form
// "file(line): function" is returned unchanged.
std::string FrameInWords(std::string_view frame, std::string_view folder = "");

// Returns the innermost frame of the program itself in a stack (innermost frame
// first), in words; "" if there is none. Paths are relative to the folder of
// the outermost of the program's own frames, which is usually that of the
// script.
std::string SourceLine(const Trace& trace, std::span<const NameId> frames);

}  // namespace stepscope
