// Starts the recording of an unmodified program into which the library was
// injected. Any thread may call it. Errors are one line on stderr; nothing is
// thrown.
#pragma once

namespace stepscope {

// Reads the environment and prepares the window. Only the first call in a
// process does something.
void StartInjected() noexcept;

}  // namespace stepscope
