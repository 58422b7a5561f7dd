#include "device/collective_calls.h"

#include <algorithm>
#include <string_view>

#include "ops/contains.h"
#include "ops/op_traits.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// True for kinds that a call or range may replace by a more precise one. NCCL
// runs several collectives with kernels named SendRecv or Generic.
bool IsVague(CollectiveKind kind) {
  return kind == CollectiveKind::kOther ||
         kind == CollectiveKind::kPointToPoint;
}

}  // namespace

CollectiveCalls::CollectiveCalls(const Trace& trace, const OpTree& tree,
                                 const Steps& steps)
    : trace_(trace), steps_(steps), autograd_(trace.threads().size()) {
  for (RowId row : AutogradThreads(tree, steps.thread)) autograd_[row] = true;
  last_backward_.resize(steps.windows.size());
  first_backward_.resize(steps.windows.size(), INT64_MAX);
  for (const Op& op : trace.ops()) {
    if (op.kind != OpKind::kBackward) continue;
    const size_t step = StepAt(op.begin_ns);
    if (step == kNoStep) continue;
    first_backward_[step] = std::min(first_backward_[step], op.begin_ns);
    last_backward_[step] = std::max(last_backward_[step], op.begin_ns);
  }
}

// Uses host windows, because a collective belongs to the step that issued it,
// whenever it ran.
size_t CollectiveCalls::StepAt(int64_t ns) const {
  const auto after = std::ranges::upper_bound(
      steps_.windows, ns, {},
      [](const StepWindow& w) { return w.host.begin_ns; });
  if (after == steps_.windows.begin()) return kNoStep;
  const auto index = static_cast<size_t>(after - steps_.windows.begin()) - 1;
  return ns < steps_.windows[index].host.end_ns ? index : kNoStep;
}

size_t CollectiveCalls::TileAt(int64_t ns) const {
  const auto after = std::ranges::upper_bound(
      steps_.windows, ns, {},
      [](const StepWindow& w) { return w.tiled.end_ns; });
  return after == steps_.windows.end() || ns < after->tiled.begin_ns
             ? kNoStep
             : static_cast<size_t>(after - steps_.windows.begin());
}

void CollectiveCalls::ApplyMetadata(const Communication& row,
                                    Collective& one) const {
  const std::string_view type = trace_.name(row.dtype);
  one.integer = IsIntegerType(type);
  if (!type.empty()) one.float32 = IsFloat32Type(type);
  one.sequence = row.sequence;
  one.group_size = row.group_size;
  one.group = row.group_ranks != 0 ? row.group_ranks : row.group_name;
  // An all-gather has a larger output, a reduce-scatter a larger input. The
  // larger one passes the links.
  const int64_t elements = std::max(row.in_elements, row.out_elements);
  if (elements >= 0 && CollectiveElementBytes(type) > 0) {
    one.bytes = elements * CollectiveElementBytes(type);
  }
  const CollectiveKind kind = CollectiveKindOf(trace_.name(row.name));
  if (kind != CollectiveKind::kOther) one.kind = kind;
}

// Files without NCCL metadata may still have the shapes of the call's tensors.
// The largest tensor is the buffer. c10d's ops take tensor lists, whose
// elements count like arguments.
void CollectiveCalls::SizeFromInputs(RowId op, Collective& one) const {
  const RowId inputs = trace_.ops()[op].inputs;
  if (inputs == kNone) return;
  int64_t bytes = 0;
  bool integer = false, float32 = false;
  const auto add = [&](const Argument& argument) {
    if (argument.dims.empty()) return;
    int64_t elements = 1;
    for (int64_t dim : argument.dims) elements *= dim;
    const std::string_view type = trace_.name(argument.type);
    integer |= IsIntegerType(type);
    const int64_t size = elements * CollectiveElementBytes(type);
    if (size > bytes) float32 = IsFloat32Type(type);
    bytes = std::max(bytes, size);
  };
  for (const Argument& argument : trace_.op_inputs()[inputs].arguments) {
    add(argument);
    for (const Argument& element : argument.elements) add(element);
  }
  if (bytes > 0) {
    one.bytes = bytes;
    one.integer = integer;
    one.float32 = float32;
  }
}

// Goes from the kernel's op outwards. The outermost op of a collective is the
// program's call; the inner ones are the library's.
void CollectiveCalls::Describe(RowId innermost, Collective& one) const {
  for (RowId row = innermost; row != kNone; row = trace_.ops()[row].parent) {
    const Op& op = trace_.ops()[row];
    if (op.kind == OpKind::kBackward) one.in_backward = true;
    const std::string_view name = trace_.name(op.name);
    if (!IsCollectiveOp(name)) continue;
    one.op = row;
    if (IsVague(one.kind) && !IsVague(CollectiveKindOf(name))) {
      one.kind = CollectiveKindOf(name);
    }
    if (one.bytes < 0) SizeFromInputs(row, one);
  }
  if (one.op == kNone) return;
  const Op& op = trace_.ops()[one.op];
  one.issued = {op.begin_ns, op.end_ns};
  one.thread = op.thread;
}

// c10d opens a range such as "nccl:all_to_all" around the launch.
void CollectiveCalls::NameByRange(Collective& one) const {
  if (one.thread == kNone || !IsVague(one.kind)) return;
  auto it = std::ranges::upper_bound(trace_.ranges(), one.issued.begin_ns, {},
                                     &Range::begin_ns);
  // Looks at the eight ranges that began last: the range begins directly before
  // the call, and outer ranges may have begun long before.
  for (int tries = 0; tries < 8 && it != trace_.ranges().begin(); ++tries) {
    --it;
    const CollectiveKind kind = CollectiveKindOf(trace_.name(it->name));
    if (it->thread != one.thread || it->kind != RangeKind::kCollective ||
        it->end_ns < one.issued.begin_ns || IsVague(kind)) {
      continue;
    }
    one.kind = kind;
    return;
  }
}

// Gradients matter because only their all-reduces can be hidden or bucketed.
// The all-reduce of a metric or a norm must stay where it is.
void CollectiveCalls::MarkGradient(Collective& one) const {
  if (one.thread != kNone && one.thread < autograd_.size() &&
      autograd_[one.thread]) {
    one.in_backward = true;
  }
  if (one.kind != CollectiveKind::kAllReduce || one.integer ||
      one.step == kNoStep) {
    return;
  }
  // DDP issues its all-reduces inside AccumulateGrad nodes. A program that
  // reduces gradients itself does so after backward(); there, any all-reduce
  // between the backward pass and the end of the step counts.
  if (const RowId node = NodeAround(trace_, one.op); node != kNone) {
    one.gradient =
        Contains(trace_.name(trace_.ops()[node].name), "AccumulateGrad");
    return;
  }
  one.gradient =
      one.issued.begin_ns >= first_backward_[one.step] &&
      (one.in_backward || one.issued.begin_ns > last_backward_[one.step]);
}

}  // namespace stepscope
