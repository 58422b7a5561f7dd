// The fields of device activities from a Chrome event's args: what Kineto's
// names and lists say.
#pragma once

#include <stepscope/event.h>

#include <string_view>

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope {

// Device, stream, context and correlation. Where args lack a device or stream
// it is the row the event is drawn on.
void ReadDeviceWork(const ChromeEvent& event, DeviceWork* work);
// Launch shape and occupancy.
void ReadKernel(const ChromeEvent& event, Kernel* kernel);
// Bytes, and the kinds of memory by the name ("Memcpy HtoD (Pageable ->
// Device)") or by our own args.
void ReadCopy(const ChromeEvent& event, std::string_view name, Copy* copy);

}  // namespace stepscope
