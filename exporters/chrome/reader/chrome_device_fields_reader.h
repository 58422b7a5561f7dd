// Reads the fields of device activities (kernels, copies, memsets) from the
// args of a Chrome event. A field that is missing keeps its default.
#pragma once

#include <stepscope/event.h>

#include <string_view>

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope {

// Device, stream, context and correlation. Where the args have no device or
// stream, the pid and tid of the event are taken.
void ReadDeviceWork(const ChromeEvent& event, DeviceWork* work);
// Launch shape and occupancy.
void ReadKernel(const ChromeEvent& event, Kernel* kernel);
// Bytes, and the kinds of memory, which are in the name ("Memcpy HtoD (Pageable
// -> Device)") or in our own args.
void ReadCopy(const ChromeEvent& event, std::string_view name, Copy* copy);

}  // namespace stepscope
