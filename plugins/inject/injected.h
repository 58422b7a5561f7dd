// Starts recording in an unmodified program into which the library was
// injected. Any thread may call it. Errors are printed as one line on stderr;
// no exception leaves it.
#pragma once

namespace stepscope {

// Reads the environment and prepares the window. Only the first call in a
// process has an effect.
void StartInjected() noexcept;

}  // namespace stepscope
