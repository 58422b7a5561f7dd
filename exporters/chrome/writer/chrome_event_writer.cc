#include "chrome/writer/chrome_event_writer.h"

#include <algorithm>
#include <utility>

#include "rows/row_fields.h"

namespace stepscope {
namespace {

// Our own Python ids follow the largest recorded id below this. Readers hold
// numbers as doubles, which are exact only below 2^53.
constexpr int64_t kMostPythonId = int64_t{1} << 53;

// Returns when `annotation` is drawn: over the whole recording if it has no
// span of its own. One before the first event would stretch the viewers' time
// axis.
TimeSpan DrawnSpan(const Annotation& annotation, const TimeSpan& recording) {
  if (annotation.end_ns <= annotation.begin_ns) return recording;
  const int64_t begin_ns = std::max(annotation.begin_ns, recording.begin_ns);
  return {begin_ns, std::max(annotation.end_ns, begin_ns)};
}

}  // namespace

ChromeEventWriter::ChromeEventWriter(const Trace& trace, ChromeFlavour flavour,
                                     int64_t base_ns, ChromeRows* rows,
                                     std::string* out,
                                     const ChromeRankPlace& place)
    : trace_(trace),
      flavour_(flavour),
      base_ns_(base_ns),
      rows_(*rows),
      out_(*out),
      json_(out),
      links_(trace, flavour),
      inputs_(trace),
      totals_(trace),
      fused_ops_(trace),
      arrow_due_(trace.runtime_calls().size()),
      next_arrow_(place.first_arrow),
      rank_name_(place.name) {
  for (const TimelineArrow& arrow : place.arrows) {
    if (arrow.kernel != kNone) {
      kernel_arrows_.emplace(arrow.kernel, &arrow);
    } else {
      host_arrows_.emplace(std::pair(arrow.begin_ns, arrow.end_ns), &arrow);
    }
  }
  for (const PythonFrame& frame : trace.python_frames()) {
    if (frame.python_id >= kMostPythonId) continue;
    first_python_id_ = std::max(first_python_id_, frame.python_id + 1);
  }
}

// Keys come in a fixed order, so that two files can be compared as text. The
// args stay open for the caller.
void ChromeEventWriter::Open(std::string_view category, std::string_view name,
                             const ChromePlace& place, int64_t begin_ns,
                             int64_t end_ns, bool ends_early) {
  last_place_ = place;
  out_ += ",\n{\"ph\": \"X\", \"cat\": \"";
  out_ += category;
  out_ += "\", \"name\": ";
  AppendQuoted(name, out_);
  out_ += ", \"pid\": ";
  AppendInt(place.pid, out_);
  out_ += ", \"tid\": ";
  AppendInt(place.tid, out_);
  out_ += ", \"ts\": ";
  AppendMicros(begin_ns - base_ns_, out_);
  out_ += ", \"dur\": ";
  const int64_t length_ns = std::max<int64_t>(end_ns - begin_ns, 0);
  ends_early = ends_early && length_ns > 0;
  AppendMicros(ends_early ? length_ns - 1 : length_ns, out_);
  if (ends_early) out_ += '6';
  out_ += ", \"args\": ";
  json_.OpenObject();
}

void ChromeEventWriter::OpenInstant(std::string_view category,
                                    std::string_view name,
                                    const ChromePlace& place, int64_t time_ns) {
  out_ += ",\n{\"ph\": \"i\", \"s\": \"t\", \"cat\": \"";
  out_ += category;
  out_ += "\", \"name\": ";
  AppendQuoted(name, out_);
  out_ += ", \"pid\": ";
  AppendInt(place.pid, out_);
  out_ += ", \"tid\": ";
  AppendInt(place.tid, out_);
  out_ += ", \"ts\": ";
  AppendMicros(time_ns - base_ns_, out_);
  out_ += ", \"args\": ";
  json_.OpenObject();
}

void ChromeEventWriter::Close() {
  json_.CloseObject();
  out_ += '}';
}

// The PyTorch plugin takes any event whose name starts with "ProfilerStep" for
// a step, and cannot read the file if no number follows the "#".
std::string_view ChromeEventWriter::Harmless(std::string_view name) {
  is_altered_ = name.starts_with("ProfilerStep");
  if (!is_altered_) return name;
  altered_name_ = "range ";
  altered_name_ += name;
  return altered_name_;
}

void ChromeEventWriter::ThreadArgs(const ChromePlace& place, RowId thread) {
  if (!place.displaced) return;
  json_.Field("stepscope.thread",
              thread == kNone ? int64_t{-1} : int64_t{thread});
}

// Arrows are for the eye only; stepscope and HTA link by correlation. "bp": "e"
// binds the end to the slice around it, so an arrow must come after its slices
// (Perfetto).
void ChromeEventWriter::Arrow(const char* category, int64_t id, bool is_start,
                              int64_t pid, int64_t tid, int64_t at_ns) {
  out_ += is_start ? ",\n{\"ph\": \"s\", \"id\": "
                   : ",\n{\"ph\": \"f\", \"bp\": \"e\", \"id\": ";
  AppendInt(id, out_);
  out_ += ", \"pid\": ";
  AppendInt(pid, out_);
  out_ += ", \"tid\": ";
  AppendInt(tid, out_);
  out_ += ", \"ts\": ";
  AppendMicros(at_ns - base_ns_, out_);
  out_ += ", \"cat\": \"";
  out_ += category;
  out_ += "\", \"name\": \"";
  out_ += category;
  out_ += "\"}";
}

// The plugin limits its GPU counters to this span.
void ChromeEventWriter::WriteSpan(const TimeSpan& span) {
  out_ +=
      ",\n{\"ph\": \"X\", \"cat\": \"Trace\", \"name\": \"PyTorch Profiler "
      "(0)\", \"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\", \"ts\": ";
  AppendMicros(span.begin_ns - base_ns_, out_);
  out_ += ", \"dur\": ";
  AppendMicros(span.end_ns - span.begin_ns, out_);
  out_ += ", \"args\": {\"Op count\": ";
  AppendInt(static_cast<int64_t>(trace_.ops().size()), out_);
  out_ += "}}";
}

// Writes Kineto's marks of the start and end of the recording, as global
// instants.
void ChromeEventWriter::WriteBounds(const TimeSpan& span) {
  const RunInfo& run = trace_.run();
  const bool is_known = run.window_end_ns > run.window_begin_ns;
  Instant("Iteration Start: PyTorch Profiler",
          is_known ? run.window_begin_ns : span.begin_ns);
  Instant("Record Window End", is_known ? run.window_end_ns : span.end_ns);
}

void ChromeEventWriter::Instant(const char* name, int64_t time_ns) {
  out_ += ",\n{\"ph\": \"i\", \"s\": \"g\", \"name\": \"";
  out_ += name;
  out_ += "\", \"pid\": \"Traces\", \"tid\": \"PyTorch Profiler\", \"ts\": ";
  AppendMicros(time_ns - base_ns_, out_);
  out_ += '}';
}

// Losses become slices over the recording, because viewers have no other place
// where a user would see them.
void ChromeEventWriter::WriteLosses(const TimeSpan& span) {
  for (const Loss& loss : trace_.losses()) {
    // A note, such as one that the machine has no GPU, says that nothing is
    // missing.
    if (loss.severity == Severity::kNote) continue;
    Annotation annotation = {.row = "missing from the recording",
                             .name = loss.name,
                             .text = loss.detail,
                             .severity = loss.severity};
    if (loss.count >= 0)
      annotation.text += " (" + std::to_string(loss.count) + ")";
    WriteAnnotation(annotation, span);
  }
}

void ChromeEventWriter::WriteAnnotations(
    std::span<const Annotation> annotations, const TimeSpan& span) {
  std::vector<const Annotation*> order;
  order.reserve(annotations.size());
  for (const Annotation& annotation : annotations) order.push_back(&annotation);
  // Of two that start together, the longer one contains the other.
  std::ranges::stable_sort(order, {}, [&](const Annotation* one) {
    const TimeSpan drawn = DrawnSpan(*one, span);
    return std::pair(drawn.begin_ns, -drawn.end_ns);
  });
  for (const Annotation* annotation : order) WriteAnnotation(*annotation, span);
}

void ChromeEventWriter::WriteAnnotation(const Annotation& annotation,
                                        const TimeSpan& span) {
  const auto [begin_ns, end_ns] = DrawnSpan(annotation, span);
  const ChromePlace place = rows_.OnOwnRow(annotation.row, begin_ns, end_ns);
  Open("stepscope", Harmless(annotation.name), place, begin_ns, end_ns);
  json_.Field("severity",
              kSeverityTexts[static_cast<size_t>(annotation.severity)]);
  if (!annotation.text.empty()) json_.Field("text", annotation.text);
  Close();
}

void ChromeEventWriter::Write(Table table, RowId row) {
  switch (table) {
    case Table::kStep:
      return Write(trace_.steps()[row]);
    case Table::kRange: {
      const Range& range = trace_.ranges()[row];
      Write(range, row);
      return ArrowsOfHost(range.begin_ns, range.end_ns);
    }
    case Table::kPythonFrame:
      return Write(trace_.python_frames()[row]);
    case Table::kOp: {
      const Op& op = trace_.ops()[row];
      Write(op, row);
      return ArrowsOfHost(op.begin_ns, op.end_ns);
    }
    case Table::kCommunication:
      if (links_.RidesOnOp(row)) return;
      return Write(trace_.communications()[row], row);
    case Table::kRuntimeCall:
      return Write(trace_.runtime_calls()[row], row);
    case Table::kOverhead:
      return Write(trace_.overheads()[row]);
    case Table::kAllocation:
      return Write(trace_.allocations()[row], row);
    case Table::kDeviceMemory:
      return Write(trace_.device_memory()[row]);
    case Table::kKernel:
      Write(trace_.kernels()[row]);
      return ArrowsOfKernel(row);
    case Table::kCopy:
      return Write(trace_.copies()[row]);
    case Table::kMemset:
      return Write(trace_.memsets()[row]);
    case Table::kSync:
      return Write(trace_.syncs()[row]);
    case Table::kCount:
      return;
  }
}

void ChromeEventWriter::ArrowsOfKernel(RowId kernel) {
  const auto [begin, end] = kernel_arrows_.equal_range(kernel);
  for (auto it = begin; it != end; ++it) WriteRankArrow(*it->second);
}

void ChromeEventWriter::ArrowsOfHost(int64_t begin_ns, int64_t end_ns) {
  if (host_arrows_.empty()) return;
  const auto [begin, end] = host_arrows_.equal_range({begin_ns, end_ns});
  for (auto it = begin; it != end; ++it) WriteRankArrow(*it->second);
  host_arrows_.erase(begin, end);
}

void ChromeEventWriter::WriteRankArrow(const TimelineArrow& arrow) {
  Arrow("collective", arrow.id, arrow.is_start, last_place_.pid,
        last_place_.tid, arrow.at_ns);
}

}  // namespace stepscope
