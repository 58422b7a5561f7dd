// The part of ChromeRowReader that reads the rows of host threads: operators,
// ranges, steps, collectives, Python frames and memory events.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "chrome/reader/chrome_row_fields.h"
#include "chrome/reader/chrome_rows_reader.h"
#include "rows/field_values.h"

namespace stepscope {
namespace {

RangeKind RangeKindOf(std::string_view word) {
  if (word == "phase") return RangeKind::kPhase;
  if (word == "loader") return RangeKind::kLoader;
  if (word == "optimizer") return RangeKind::kOptimizer;
  if (word == "module") return RangeKind::kModule;
  if (word == "collective") return RangeKind::kCollective;
  if (word == "nvtx") return RangeKind::kNvtx;
  return RangeKind::kUser;
}

// True if an op has the metadata of a collective. In our files `stepscope.only`
// decides if it is present.
bool IsCommunication(const ChromeEvent& event) {
  if (event.has(ArgKey::kOurOnly))
    return event.arg(ArgKey::kOurOnly).text == "communication";
  return event.has(ArgKey::kCollective) || event.has(ArgKey::kInElements) ||
         event.has(ArgKey::kGroupName) || event.has(ArgKey::kGroupRanks);
}

}  // namespace

// In older files loaders, optimizers, collectives and step marks are cpu_op
// events like operators, and only their names tell them apart. In our files
// every record_param_comms is a collective unless `stepscope.only` says
// otherwise.
void ChromeRowReader::AddOp(const ChromeEvent& event, const Times& times) {
  if (event.has(ArgKey::kOurRange) ||
      (!is_ours_ && ClassifyRange(event.name.text) != RangeKind::kUser) ||
      (!is_ours_ && IsStepMark(event.name.text))) {
    return AddAnnotation(event, times);
  }
  if (IsCommunication(event) || (is_ours_ && !event.has(ArgKey::kOurOnly) &&
                                 event.name.text == "record_param_comms")) {
    AddCommunication(event, times);
    if (event.arg(ArgKey::kOurOnly).text == "communication") return;
  }
  Op op;
  op.begin_ns = times.begin_ns;
  op.end_ns = times.end_ns;
  op.name = NameOf(event);
  op.thread = ThreadOf(event);
  Take(event, ArgKey::kSequence, &op.sequence);
  Take(event, ArgKey::kForwardThread, &op.forward_thread);
  // Kineto writes 0 on forward ops. Our files have the key only on backward
  // nodes.
  const bool is_backward =
      is_ours_ ? event.has(ArgKey::kForwardThread) : op.forward_thread != 0;
  if (is_backward) op.kind = OpKind::kBackward;
  op.inputs = inputs_.Inputs(event);
  op.stack = inputs_.CallStack(event);
  op.code = inputs_.Code(event);
  if (op.inputs != kNone) seen_ |= Bit(Kind::kOpShapes);
  if (op.stack != kNone) seen_ |= Bit(Kind::kOpStacks);
  seen_ |= Bit(Kind::kOp);
  builder_->Add(op);
}

// In our files the arg `stepscope.step` marks a step, because a user's range
// may have the name of a step mark.
void ChromeRowReader::AddAnnotation(const ChromeEvent& event,
                                    const Times& times) {
  if (is_ours_ ? event.has(ArgKey::kOurStep) : IsStepMark(event.name.text)) {
    const int64_t number =
        is_ours_ ? ToInteger(event.arg(ArgKey::kOurStep)).value_or(-1)
                 : StepNumber(event.name.text);
    return AddStep(event, times, number);
  }
  AddRange(event, times, NameOf(event));
}

void ChromeRowReader::AddRange(const ChromeEvent& event, const Times& times,
                               NameId name) {
  Range range;
  range.begin_ns = times.begin_ns;
  range.end_ns = times.end_ns;
  range.name = name;
  range.detail = InternArg(event, ArgKey::kOurDetail);
  range.thread = ThreadOf(event);
  range.kind = event.has(ArgKey::kOurRange)
                   ? RangeKindOf(event.arg(ArgKey::kOurRange).text)
                   : ClassifyRange(event.name.text);
  seen_ |= Bit(Kind::kRange);
  if (range.kind == RangeKind::kLoader) seen_ |= Bit(Kind::kLoader);
  if (range.kind == RangeKind::kCollective && !is_ours_) KeepSize(event, range);
  builder_->Add(range);
}

// Keeps the size of a collective from the dims of its "nccl:all_reduce" range.
// Before record_param_comms had metadata (2023) nothing else gave the size.
void ChromeRowReader::KeepSize(const ChromeEvent& event, const Range& range) {
  const RowId inputs = inputs_.Inputs(event);
  if (inputs == kNone || builder_->inputs(inputs).arguments.empty()) return;
  const Argument& tensor = builder_->inputs(inputs).arguments.front();
  if (tensor.dims.empty()) return;
  Communication row;
  row.begin_ns = range.begin_ns;
  row.end_ns = range.end_ns;
  row.thread = range.thread;
  const size_t colon = event.name.text.find(':');
  row.name = builder_->Intern(
      event.name.text.substr(colon == std::string_view::npos ? 0 : colon + 1));
  row.dtype = tensor.type;
  row.in_elements = 1;
  for (int64_t dim : tensor.dims) {
    // A damaged file may have any dims.
    if (dim < 0 ||
        __builtin_mul_overflow(row.in_elements, dim, &row.in_elements)) {
      return;
    }
  }
  range_communications_.push_back(row);
}

void ChromeRowReader::AddStep(const ChromeEvent& event, const Times& times,
                              int64_t number) {
  if (!is_ours_ &&
      !steps_.emplace(number, times.begin_ns, times.end_ns).second) {
    ++counts_.duplicate_steps;
    return;
  }
  Step step;
  step.begin_ns = times.begin_ns;
  step.end_ns = times.end_ns;
  step.number = number;
  step.thread = ThreadOf(event);
  seen_ |= Bit(Kind::kStep);
  if (!is_ours_ && number < 0) {
    ++counts_.unnumbered_steps;
    if (unnumbered_steps_.empty()) {
      counts_.unnumbered_example = std::string(event.name.text);
    }
    unnumbered_steps_.push_back(step);
    return;
  }
  builder_->Add(step);
}

// Numbers the steps whose number cannot be read in the order of their times,
// after all others.
void ChromeRowReader::AddUnnumberedSteps() {
  int64_t last = -1;
  if (!steps_.empty()) last = std::max(last, std::get<0>(*steps_.rbegin()));
  std::ranges::stable_sort(unnumbered_steps_, {}, &Step::begin_ns);
  for (Step& step : unnumbered_steps_) {
    // A damaged file may have the largest number there is.
    if (last < INT64_MAX) ++last;
    step.number = last;
    builder_->Add(step);
  }
  unnumbered_steps_.clear();
}

void ChromeRowReader::AddCommunication(const ChromeEvent& event,
                                       const Times& times) {
  Communication row;
  row.begin_ns = times.begin_ns;
  row.end_ns = times.end_ns;
  row.thread = ThreadOf(event);
  row.name = InternArg(event, ArgKey::kCollective);
  row.dtype = InternArg(event, ArgKey::kDtype);
  row.group_name = InternArg(event, ArgKey::kGroupName);
  row.group_description = InternArg(event, ArgKey::kGroupDescription);
  row.group_ranks = InternArg(event, ArgKey::kGroupRanks);
  Take(event, ArgKey::kInElements, &row.in_elements);
  Take(event, ArgKey::kOutElements, &row.out_elements);
  Take(event, ArgKey::kGroupSize, &row.group_size);
  Take(event, ArgKey::kCollectiveSequence, &row.sequence);
  seen_ |= Bit(Kind::kCommunication);
  builder_->Add(row);
}

void ChromeRowReader::AddPythonFrame(const ChromeEvent& event,
                                     const Times& times) {
  // torch.profiler writes garbage collections as frames.
  if (event.has(ArgKey::kOurRange) || event.name.text == "Python GC")
    return AddRange(event, times, NameOf(event));
  PythonFrame frame;
  frame.begin_ns = times.begin_ns;
  frame.end_ns = times.end_ns;
  frame.name = NameOf(event);
  frame.thread = ThreadOf(event);
  Take(event, ArgKey::kPythonId, &frame.python_id);
  Take(event, ArgKey::kPythonParent, &frame.python_parent_id);
  Take(event, ArgKey::kPythonModule, &frame.module_id);
  seen_ |= Bit(Kind::kPythonFrame);
  builder_->Add(frame);
}

void ChromeRowReader::AddMemory(const ChromeEvent& event) {
  Allocation row;
  if (!ReadTime(ToNanoseconds(event.begin), &row.time_ns)) return;
  row.thread = ThreadOf(event);
  Take(event, ArgKey::kMemoryBytes, &row.bytes);
  Take(event, ArgKey::kAddress, &row.address);
  Take(event, ArgKey::kTotalAllocated, &row.total_allocated_bytes);
  Take(event, ArgKey::kTotalReserved, &row.total_reserved_bytes);
  // If a recording has no totals, the writer adds them up for the plugin and
  // marks them. They are dropped here, so that the Trace equals the recording.
  int32_t counted = 0;  // 1: total allocated was added up; 2: reserved, too
  Take(event, ArgKey::kOurCounted, &counted);
  if (counted >= 1) row.total_allocated_bytes = -1;
  if (counted == 2) row.total_reserved_bytes = -1;
  Take(event, ArgKey::kDeviceType, &row.device_type);
  Take(event, ArgKey::kOurDeviceType, &row.device_type);
  Take(event, ArgKey::kDeviceId, &row.device);
  earliest_ns_ = std::min(earliest_ns_, row.time_ns);
  latest_ns_ = std::max(latest_ns_, row.time_ns);
  seen_ |= Bit(Kind::kMemory);
  ++counts_.rows;
  builder_->Add(row);
}

}  // namespace stepscope
