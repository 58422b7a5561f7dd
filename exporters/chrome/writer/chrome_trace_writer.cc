#include "chrome/writer/chrome_trace_writer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "chrome/writer/chrome_event_writer.h"
#include "chrome/writer/chrome_gpu_ranges.h"
#include "chrome/writer/chrome_header_writer.h"

namespace stepscope {

void WriteChromeTrace(const Trace& trace,
                      std::span<const Annotation> annotations,
                      ChromeFlavour flavour, FileSink& sink) {
  const TimeSpan span = SpanOf(trace);
  const int64_t base_ns = ChromeBaseTime(trace, span);
  std::string& out = sink.block();
  ChromeRows rows(trace, &out);
  WriteChromeHeader(trace, flavour, base_ns, out);
  rows.WriteFirst();

  ChromeEventWriter events(trace, flavour, base_ns, &rows, &out);
  // Annotations and counters are not rows of the Trace, so they come first, out
  // of time order; readers sort by time.
  events.WriteSpan(span);
  events.WriteAnnotations(annotations, span);
  events.WriteLosses(span);
  events.WriteBounds(span);
  events.WriteCounters();
  if (!WriteChromeRows(trace, events, sink)) return;
  // traceEvents is the last key: the plugin splices its counters in before the
  // file's last "]".
  out += "\n  ]\n}\n";
}

bool WriteChromeRows(const Trace& trace, ChromeEventWriter& events,
                     FileSink& sink) {
  const std::vector<GpuRange> gpu_ranges = GpuRangesOf(trace, !events.is_tb());
  auto gpu_range = gpu_ranges.begin();
  // Ranges on the device are not rows of the Trace. They are merged into the
  // time order of its rows.
  EventOrder order(trace);
  for (size_t count = 0; order.Next(); ++count) {
    for (; gpu_range != gpu_ranges.end() &&
           gpu_range->begin_ns <= order.begin_ns();
         ++gpu_range) {
      events.Write(*gpu_range);
    }
    events.Write(order.table(), order.row());
    sink.Flush();
    // A full disk is noticed within a few thousand events instead of at the
    // end.
    constexpr size_t kCheckEvery = 4096;
    if (count % kCheckEvery == 0 && sink.failed()) return false;
  }
  return true;
}

}  // namespace stepscope
