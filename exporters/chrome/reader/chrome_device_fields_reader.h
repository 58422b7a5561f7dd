// Reads the fields of device activities (kernels, copies, memsets) from the
// args of a Chrome event. A field that is missing keeps its default.
#pragma once

#include <stepscope/event.h>

#include <string_view>

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope {

// Reads device, stream, context and correlation. If the args have no device or
// stream, the event's pid and tid are used.
void ReadDeviceWork(const ChromeEvent& event, DeviceWork* work);
// Reads the launch shape and the occupancy.
void ReadKernel(const ChromeEvent& event, Kernel* kernel);
// Reads the bytes and the kinds of memory. The kinds are in the name ("Memcpy
// HtoD (Pageable -> Device)") or in our own args.
void ReadCopy(const ChromeEvent& event, std::string_view name, Copy* copy);

}  // namespace stepscope
