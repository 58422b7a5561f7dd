// The part of ChromeEventWriter that writes the rows of a device other than
// activities: ranges, the driver's memory.
#include <string>

#include "chrome/writer/chrome_event_writer.h"
#include "rows/row_fields.h"

namespace stepscope {

void ChromeEventWriter::Write(const GpuRange& gpu_range) {
  const ChromePlace place = rows_.OnStream(
      gpu_range.device, gpu_range.stream, gpu_range.begin_ns, gpu_range.end_ns);
  // There is no arg "stream", because HTA would take the event for a kernel.
  if (gpu_range.step != kNone) {
    const int64_t number = trace_.steps()[gpu_range.step].number;
    Open("gpu_user_annotation", "ProfilerStep#" + std::to_string(number), place,
         gpu_range.begin_ns, gpu_range.end_ns);
    Close();
    return;
  }
  const Range& range = trace_.ranges()[gpu_range.range];
  Open("gpu_user_annotation", Harmless(trace_.name(range.name)), place,
       gpu_range.begin_ns, gpu_range.end_ns);
  json_.Field("External id", links_.OfRange(gpu_range.range));
  Close();
}

// Writes memory that the driver allocated or freed, below the caching
// allocator. No viewer has a place for it, so it is drawn on a row of our own.
void ChromeEventWriter::Write(const DeviceMemory& event) {
  const ChromePlace place =
      rows_.OnOwnRow("driver memory, GPU " + std::to_string(event.device),
                     event.time_ns, event.time_ns);
  OpenInstant("stepscope_memory", trace_.name(event.name), place,
              event.time_ns);
  json_.Field("device", int64_t{event.device});
  if (event.stream != -1) json_.Field("stream", event.stream);
  if (event.correlation != -1) json_.Field("correlation", event.correlation);
  json_.Field("stepscope.source",
              kMemoryKindTexts[static_cast<size_t>(event.kind)]);
  if (event.is_async) json_.Field("stepscope.async", int64_t{1});
  json_.Key("Addr");
  json_.Uint(event.address);
  json_.Field("Bytes", event.bytes);
  if (event.pool_used_bytes != -1)
    json_.Field("Total Allocated", event.pool_used_bytes);
  if (event.pool_bytes != -1) json_.Field("Total Reserved", event.pool_bytes);
  Close();
}

}  // namespace stepscope
