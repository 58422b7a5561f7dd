#include "xspace/writer/xspace_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "json/json_writer.h"
#include "rows/file_threads.h"
#include "rows/own_header_writer.h"
#include "rows/row_fields.h"
#include "xspace/writer/xspace_context.h"
#include "xspace/writer/xspace_gpu.h"
#include "xspace/writer/xspace_hlo.h"
#include "xspace/writer/xspace_host.h"
#include "xspace/writer/xspace_program.h"
#include "xspace/writer/xspace_wire.h"

namespace stepscope {
namespace {

// XProf inserts the banner into its page as HTML, so names from a trace are
// escaped.
std::string Html(std::string_view text) {
  std::string html;
  for (char c : ValidUtf8(text)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\n':
        html += "<br>";
        break;
      default:
        html += c;
    }
  }
  return html;
}

// Returns the one banner for the overview page. XProf would show several
// banners in random order.
std::string Banner(const Trace& trace, std::span<const Annotation> annotations,
                   XDetail detail) {
  std::string items;
  const auto item = [&](std::string_view name, std::string_view text) {
    items += "<li><b>" + Html(name) + "</b>";
    if (!text.empty()) items += ": " + Html(text);
    items += "</li>";
  };
  for (const Loss& loss : trace.losses()) item(loss.name, loss.detail);
  if (detail != XDetail::kAll) {
    item("left out",
         detail == XDetail::kNoPythonFrames
             ? "Python frames: XProf opens no file above 2 GiB"
             : "Python frames and ops under 2 us: XProf opens no file above "
               "2 GiB");
  }
  // Findings are annotations without a length. Annotations with a length are
  // drawn as slices.
  for (const Annotation& annotation : annotations) {
    if (annotation.begin_ns == annotation.end_ns)
      item(annotation.name, annotation.text);
  }
  if (items.empty()) return "";
  return "stepscope<ul>" + items + "</ul>";
}

// Rows of our own, drawn as a process of the trace viewer.
class OwnPlane {
 public:
  OwnPlane(const XContext& context, std::span<const Annotation> annotations)
      : context_(context), names_(context.trace()) {
    for (const Annotation& annotation : annotations) {
      if (annotation.end_ns > annotation.begin_ns)
        rows_[annotation.row].push_back(&annotation);
    }
    for (auto& [row, slices] : rows_) {
      std::stable_sort(slices.begin(), slices.end(),
                       [](const Annotation* a, const Annotation* b) {
                         if (a->begin_ns != b->begin_ns)
                           return a->begin_ns < b->begin_ns;
                         return a->end_ns > b->end_ns;
                       });
    }
    const Trace& trace = context.trace();
    for (RowId row = 0; row < trace.ranges().size(); ++row) {
      const Range& range = trace.ranges()[row];
      if (range.kind == RangeKind::kPhase) phases_.push_back(row);
      if (range.kind == RangeKind::kModule &&
          range.thread == trace.run().training_thread) {
        modules_.push_back(row);
      }
    }
  }

  bool Write(XSpaceFile& file) {
    std::vector<XLineSource> sources;
    const auto add = [&](std::string name, size_t count, auto event) {
      if (count == 0) return;
      const auto id = static_cast<int64_t>(sources.size()) + 1;
      sources.push_back({id, std::move(name), id, count, std::move(event)});
    };
    for (auto& [row, slices] : rows_) {
      add(row, slices.size(),
          [this, &slices = slices](size_t i, XEventBytes& event) {
            Slice(*slices[i], event);
          });
    }
    add("phases", phases_.size(), [this](size_t i, XEventBytes& event) {
      RangeEvent(phases_[i], event);
    });
    add("modules", modules_.size(), [this](size_t i, XEventBytes& event) {
      RangeEvent(modules_[i], event);
    });
    if (sources.empty()) return true;
    return WriteXPlane(0, "/device:CUSTOM:stepscope", sources, names_,
                       XPlaneStats(), file);
  }

 private:
  void Slice(const Annotation& annotation, XEventBytes& event) {
    const int64_t begin_ns = std::max(annotation.begin_ns, context_.begin_ns());
    event.Start(names_.Event(annotation.name), begin_ns - context_.begin_ns(),
                annotation.end_ns - begin_ns);
    event.Ref(
        XStatId::kSeverity,
        names_.Text(kSeverityTexts[static_cast<size_t>(annotation.severity)]));
    if (!annotation.text.empty())
      event.Ref(XStatId::kDetail, names_.Text(annotation.text));
  }
  void RangeEvent(RowId row, XEventBytes& event) {
    const Range& range = context_.trace().ranges()[row];
    event.Start(names_.Event(range.name), range.begin_ns - context_.begin_ns(),
                range.end_ns - range.begin_ns);
    if (range.detail != 0)
      event.Ref(XStatId::kDetail, names_.Text(range.detail));
  }

  const XContext& context_;
  XNames names_;
  std::map<std::string, std::vector<const Annotation*>> rows_;
  std::vector<RowId> phases_;
  std::vector<RowId> modules_;
};

// Writes the largest plane, which comes last, with as much detail as fits.
// Planes reserve their bytes before they are written, so a plane that does not
// fit leaves the file unchanged, and the next level can be tried.
bool WriteHost(const XContext& context, XSpaceFile& file, XDetail& detail) {
  for (XDetail level :
       {XDetail::kAll, XDetail::kNoPythonFrames, XDetail::kNoShortOps}) {
    detail = level;
    if (XHostPlane(context, level).Write(file)) return true;
  }
  return false;
}

// Returns the header object of our Chrome traces as text. It holds what our own
// reader needs and XProf has no place for.
std::string OwnFacts(const Trace& trace) {
  std::string json;
  WriteOwnHeader(trace, "kineto", FileThreadsOf(trace), json);
  json.resize(json.rfind('}') + 1);  // drops the comma after it
  return "{" + json + "}";
}

absl::Status TooLarge() {
  return absl::ResourceExhaustedError(
      "cannot write the XSpace: it would exceed the 2 GiB that XProf can open; "
      "record fewer steps, or use the Chrome trace");
}

// The error for a span of `days`, which only a damaged recording has.
absl::Status TooLong(double days) {
  return absl::OutOfRangeError(
      "cannot write the XSpace: the trace spans " +
      std::to_string(std::llround(days)) +
      " days, and the format has room for 106 (picoseconds in 64 bits); remove "
      "the events with wrong times, or use the Chrome trace");
}

}  // namespace

absl::Status WriteXSpace(const Trace& trace,
                         std::span<const Annotation> annotations,
                         const XSpaceOptions& options, FileSink& sink) {
  const XContext context(trace);
  const double span_ns = static_cast<double>(context.span().end_ns) -
                         static_cast<double>(context.span().begin_ns);
  constexpr double kNsPerDay = 86'400e9;
  // A signed 64-bit number of picoseconds ends at 9.2e18, after 106 days.
  if (span_ns * 1000 > 9.2e18) return TooLong(span_ns / kNsPerDay);
  const XProgram program(context);
  // Reserved for the bytes that follow the planes.
  constexpr uint64_t kTailBytes = 1 << 16;
  XSpaceFile file(sink, options.most_bytes - kTailBytes);
  for (int32_t device : XDevices(trace)) {
    if (sink.failed()) return absl::OkStatus();
    XGpuPlane plane(context, program, device, options.input_wait);
    if (!plane.Write(file)) return TooLarge();
  }
  XPlaneStats times;
  times.Uint(XStatId::kProfileStart,
             static_cast<uint64_t>(context.span().begin_ns));
  times.Uint(XStatId::kProfileStop,
             static_cast<uint64_t>(context.span().end_ns));
  times.String(XStatId::kOwn, OwnFacts(trace));
  XDetail detail = XDetail::kAll;
  if (!OwnPlane(context, annotations).Write(file) ||
      !WriteHloPlane(context, program, file) ||
      !WriteXPlane(0, "Task Environment", {}, XNames(trace), times, file) ||
      !WriteHost(context, file, detail)) {
    return TooLarge();
  }
  constexpr int kWarningsField = 3;
  constexpr int kHostnamesField = 4;
  // The banner comes almost last, because only now it is known whether detail
  // was left out.
  const std::string banner = Banner(trace, annotations, detail);
  if (!banner.empty()) AppendBytesField(kWarningsField, banner, sink.block());
  AppendBytesField(kHostnamesField, ValidUtf8(options.host), sink.block());
  return absl::OkStatus();
}

}  // namespace stepscope
