// Access to the first GPU. The program is linked only to LibTorch's CPU half,
// so that it runs without CUDA. The other half is loaded here.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace gallery {

// Returns what is missing; empty if there is a GPU to train on.
std::string OpenGpu();

// Waits for the device. Does nothing on a CPU.
void WaitFor(c10::Device device);

}  // namespace gallery
