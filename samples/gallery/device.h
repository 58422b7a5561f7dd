// The first GPU. The program is linked to LibTorch's CPU half only, so that it
// runs where there is no CUDA; the other half is loaded here.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace gallery {

// What is missing; empty if there is a GPU to train on.
std::string OpenGpu();

// Waits for the device; nothing on a CPU.
void WaitFor(c10::Device device);

}  // namespace gallery
