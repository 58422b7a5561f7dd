// The part of ChromeEventWriter that writes the rows of host threads.
#include <algorithm>

#include "chrome/writer/chrome_event_writer.h"
#include "rows/row_fields.h"

namespace stepscope {
namespace {

// Converts Kineto's name of a type in record_param_comms to the C++ name, whose
// size the plugin knows. "" for other types.
std::string_view CppType(std::string_view dtype) {
  if (dtype == "Float") return "float";
  if (dtype == "Half") return "c10::Half";
  if (dtype == "BFloat16") return "c10::BFloat16";
  if (dtype == "Int") return "int";
  if (dtype == "Long") return "long int";
  if (dtype == "Byte") return "unsigned char";
  return "";
}

}  // namespace

// All viewers find the steps by the name "ProfilerStep#".
void ChromeEventWriter::Write(const Step& step) {
  const ChromePlace place =
      rows_.OnThread(step.thread, step.begin_ns, step.end_ns);
  // The plugin adds start and duration as floating-point numbers. Steps that
  // touch would overlap for it by a rounding error, which it reports.
  Open("user_annotation", "ProfilerStep#" + std::to_string(step.number), place,
       step.begin_ns, step.end_ns, /*ends_early=*/is_tb());
  json_.Field("stepscope.step", step.number);
  ThreadArgs(place, step.thread);
  Close();
}

void ChromeEventWriter::Write(const Range& range, RowId row) {
  const ChromePlace place =
      rows_.OnThread(range.thread, range.begin_ns, range.end_ns);
  if (is_tb() && range.kind == RangeKind::kModule)
    return WriteModule(range, row, place);
  // The plugin counts loader, optimizer and collective marks only if they have
  // the category cpu_op, as before torch 1.12. Other readers expect
  // annotations.
  const bool is_op_for_tb = range.kind == RangeKind::kLoader ||
                            range.kind == RangeKind::kOptimizer ||
                            range.kind == RangeKind::kCollective;
  const std::string_view name = trace_.name(range.name);
  Open(is_tb() && is_op_for_tb ? "cpu_op" : "user_annotation", Harmless(name),
       place, range.begin_ns, range.end_ns);
  json_.Field("External id", links_.OfRange(row));
  json_.Field("stepscope.range",
              kRangeKindTexts[static_cast<size_t>(range.kind)]);
  if (is_altered_) json_.Field("stepscope.name", name);
  if (range.detail != 0)
    json_.Field("stepscope.detail", trace_.name(range.detail));
  if (is_tb() && range.kind == RangeKind::kCollective) MarkSize(range);
  ThreadArgs(place, range.thread);
  Close();
}

// The plugin reads the size of a collective from the mark itself.
void ChromeEventWriter::MarkSize(const Range& range) {
  const RowId around = links_.CommunicationAround(range);
  if (around == kNone) return;
  const Communication& communication = trace_.communications()[around];
  const std::string_view type = CppType(trace_.name(communication.dtype));
  if (type.empty() || communication.in_elements < 0) return;
  json_.Key("Input Dims");
  out_ += "[[";
  AppendInt(communication.in_elements, out_);
  out_ += "]], \"Input type\": [\"";
  out_ += type;
  out_ += "\"]";
}

// Writes a module as the Python frame that the plugin's Module view expects.
void ChromeEventWriter::WriteModule(const Range& range, RowId row,
                                    const ChromePlace& place) {
  // The plugin numbers the modules of a class: "Conv2d_0", "Conv2d_1". Its
  // table has one row per (name, module id), so each path keeps its number.
  const auto [it, added] = modules_.try_emplace({range.name, range.detail});
  if (added) {
    it->second = {static_cast<int64_t>(modules_.size()) - 1,
                  modules_of_class_[range.detail]++};
  }
  // These ids follow those of recorded Python frames, so that both are unique.
  const int64_t python_id = first_python_id_ + row;
  // Module ranges of a thread nest, so the innermost open one is the parent.
  std::vector<OpenModule>& open = open_modules_[range.thread];
  while (!open.empty() && open.back().end_ns <= range.begin_ns) open.pop_back();
  std::string_view module_class = trace_.name(range.detail);
  if (module_class.empty()) module_class = "Module";
  std::string name = "nn.Module: ";
  name += module_class;
  name += '_';
  AppendInt(it->second.of_class, name);
  Open("python_function", name, place, range.begin_ns, range.end_ns);
  json_.Field("Python id", python_id);
  json_.Key("Python parent id");
  if (open.empty()) {
    json_.Null();
  } else {
    json_.Int(open.back().python_id);
  }
  json_.Field("Python module id", it->second.module_id);
  json_.Field("stepscope.range", "module");
  json_.Field("stepscope.name", trace_.name(range.name));
  if (range.detail != 0)
    json_.Field("stepscope.detail", trace_.name(range.detail));
  ThreadArgs(place, range.thread);
  Close();
  open.push_back({range.end_ns, python_id});
}

void ChromeEventWriter::Write(const PythonFrame& frame) {
  const ChromePlace place =
      rows_.OnThread(frame.thread, frame.begin_ns, frame.end_ns);
  const std::string_view name = trace_.name(frame.name);
  Open("python_function", Harmless(name), place, frame.begin_ns, frame.end_ns);
  json_.Field("Python id", frame.python_id);
  json_.Key("Python parent id");
  if (frame.python_parent_id < 0) {
    json_.Null();
  } else {
    json_.Int(frame.python_parent_id);
  }
  if (frame.module_id >= 0) json_.Field("Python module id", frame.module_id);
  if (is_altered_) json_.Field("stepscope.name", name);
  ThreadArgs(place, frame.thread);
  Close();
}

void ChromeEventWriter::Write(const Op& op, RowId row) {
  const ChromePlace place = rows_.OnThread(op.thread, op.begin_ns, op.end_ns);
  if (place.displaced) displaced_ops_[row] = place.tid;
  const std::string_view name = trace_.name(op.name);
  Open("cpu_op", Harmless(name), place, op.begin_ns, op.end_ns);
  json_.Field("External id", links_.OfOp(row));
  if (op.sequence != -1) json_.Field("Sequence number", op.sequence);
  if (op.kind == OpKind::kBackward) {
    // Our reader takes every op with this key for a backward op, so the key is
    // written even if the thread is not known (0).
    json_.Key("Fwd thread id");
    json_.Uint(op.forward_thread);
  }
  if (is_altered_) json_.Field("stepscope.name", name);
  if (op.inputs != kNone) inputs_.AppendInputs(op.inputs, out_);
  if (op.stack != kNone) inputs_.AppendStack(op.stack, out_);
  if (op.code != kNone) {
    const std::vector<NameId>& code = trace_.stacks()[op.code].frames;
    json_.Field("kernel_file", trace_.name(code[0]));
    json_.Field("kernel_kwargs", trace_.name(code[1]));
  }
  FusedOpsArg(op.name);
  // In the Trace a collective is both an op and a communication; in Kineto's
  // files it is one event.
  const RowId communication = links_.CommunicationOn(row);
  if (communication != kNone) {
    CollectiveArgs(trace_.communications()[communication]);
  } else if (name == "record_param_comms") {
    json_.Field("stepscope.only", "op");
  }
  ThreadArgs(place, op.thread);
  Close();
  // The engine's range around a node has the same forward op. Only the node
  // gets the arrow, as in Kineto's files.
  if (op.forward == kNone ||
      name.starts_with("autograd::engine::evaluate_function")) {
    return;
  }
  const Op& forward = trace_.ops()[op.forward];
  if (forward.thread == kNone || op.thread == kNone) return;
  // The arrow starts where the forward op is drawn, which is another tid if
  // that op had to give way.
  auto [pid, tid] = rows_.FileThread(forward.thread);
  const auto displaced = displaced_ops_.find(op.forward);
  if (displaced != displaced_ops_.end()) tid = displaced->second;
  const int64_t id = next_arrow_++;
  Arrow("fwdbwd", id, true, pid, tid, forward.begin_ns);
  Arrow("fwdbwd", id, false, place.pid, place.tid, op.begin_ns);
}

// The arg is for people who look at the event. Our reader gets the operators
// from the name.
void ChromeEventWriter::FusedOpsArg(NameId name) {
  const std::string& ops = fused_ops_.Of(name);
  if (!ops.empty()) json_.Field("stepscope.fused_ops", ops);
}

void ChromeEventWriter::CollectiveArgs(const Communication& communication) {
  const auto text = [&](const char* key, NameId id) {
    if (id != 0) json_.Field(key, trace_.name(id));
  };
  const auto number = [&](const char* key, int64_t value) {
    if (value != -1) json_.Field(key, value);
  };
  text("Collective name", communication.name);
  text("dtype", communication.dtype);
  number("In msg nelems", communication.in_elements);
  number("Out msg nelems", communication.out_elements);
  number("Group size", communication.group_size);
  text("Process Group Name", communication.group_name);
  text("Process Group Description", communication.group_description);
  text("Process Group Ranks", communication.group_ranks);
  number("Seq", communication.sequence);
}

void ChromeEventWriter::Write(const Communication& communication, RowId row) {
  const ChromePlace place = rows_.OnThread(
      communication.thread, communication.begin_ns, communication.end_ns);
  Open("cpu_op", "record_param_comms", place, communication.begin_ns,
       communication.end_ns);
  json_.Field("External id", links_.OfCommunication(row));
  json_.Field("stepscope.only", "communication");
  CollectiveArgs(communication);
  ThreadArgs(place, communication.thread);
  Close();
}

void ChromeEventWriter::Write(const Overhead& overhead) {
  const ChromePlace place =
      rows_.OnThread(overhead.thread, overhead.begin_ns, overhead.end_ns);
  const std::string_view name = trace_.name(overhead.name);
  Open("overhead", Harmless(name), place, overhead.begin_ns, overhead.end_ns);
  if (is_altered_) json_.Field("stepscope.name", name);
  ThreadArgs(place, overhead.thread);
  Close();
}

void ChromeEventWriter::Write(const Allocation& event, RowId row) {
  const ChromePlace place =
      rows_.OnThread(event.thread, event.time_ns, event.time_ns);
  OpenInstant("cpu_instant_event", "[memory]", place, event.time_ns);
  // The plugin shows an error page for any type but CPU and CUDA.
  const bool is_odd = event.device_type != 0 && event.device_type != 1;
  json_.Field("Device Type", is_tb() && is_odd ? 1 : event.device_type);
  json_.Field("Device Id", int64_t{event.device});
  json_.Key("Addr");
  json_.Uint(event.address);
  json_.Field("Bytes", event.bytes);
  const MemoryTotals::Totals totals = totals_.After(row);
  // The plugin draws no memory curve without totals.
  const bool is_counted = is_tb() && totals.counted;
  if (event.total_allocated_bytes != -1 || is_counted)
    json_.Field("Total Allocated", totals.allocated_bytes);
  if (event.total_reserved_bytes != -1 || is_counted) {
    json_.Field("Total Reserved",
                std::max<int64_t>(event.total_reserved_bytes, 0));
  }
  if (is_counted) {
    json_.Field("stepscope.counted",
                event.total_reserved_bytes == -1 ? int64_t{2} : int64_t{1});
  }
  if (is_tb() && is_odd)
    json_.Field("stepscope.device_type", int64_t{event.device_type});
  ThreadArgs(place, event.thread);
  Close();
}

}  // namespace stepscope
