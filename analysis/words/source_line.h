// Frames of stacks, as recorders write them ("train.py(31): step"), as a reader
// of a report wants them ("train.py:31 in step"). Functions without state.
#pragma once

#include <stepscope/trace.h>

#include <span>
#include <string>
#include <string_view>

namespace stepscope {

// True for frames of PyTorch, its C++ libraries, installed packages and the
// interpreter ("<built-in method ...>", the standard library).
bool IsFrameworkFrame(std::string_view frame);

// The frame in words. `folder` ("/home/me/project/") is left out of the file's
// path where it begins with it. A frame that is no "file(line): function" is
// returned as it is.
std::string FrameInWords(std::string_view frame, std::string_view folder = "");

// The innermost frame of the program itself in a stack (innermost frame first),
// in words; "" if there is none. Files are named from the folder of the
// outermost of these frames, which is usually that of the script.
std::string SourceLine(const Trace& trace, std::span<const NameId> frames);

}  // namespace stepscope
