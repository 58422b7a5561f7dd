#include "chrome/writer/chrome_links.h"

#include <algorithm>
#include <map>

namespace stepscope {
namespace {

// True for the marks of the two backends that the plugin knows.
bool IsCollectiveMark(std::string_view name) {
  return name.starts_with("nccl:") || name.starts_with("gloo:");
}

// Returns the last of `rows` (sorted by begin) that contains `time_ns`. Gives
// up after kLookBack rows, so that the many marks that have ended cost nothing.
template <typename Row>
RowId LastAround(std::span<const Row> table, const std::vector<RowId>& rows,
                 int64_t time_ns) {
  constexpr int kLookBack = 16;
  auto after = std::partition_point(rows.begin(), rows.end(), [&](RowId row) {
    return table[row].begin_ns <= time_ns;
  });
  for (int i = 0; i < kLookBack && after != rows.begin(); ++i) {
    --after;
    if (table[*after].end_ns >= time_ns) return *after;
  }
  return kNone;
}

}  // namespace

// Ids: ops first, then ranges, then communications without an op. 0 is "none"
// for every reader.
ChromeLinks::ChromeLinks(const Trace& trace, ChromeFlavour flavour)
    : trace_(trace),
      range_base_(1 + static_cast<int64_t>(trace.ops().size())),
      communication_base_(range_base_ +
                          static_cast<int64_t>(trace.ranges().size())),
      op_under_(trace.communications().size(), kNone),
      launched_(trace.runtime_calls().size()) {
  for (RowId row = 0; row < trace.communications().size(); ++row) {
    const Communication& communication = trace.communications()[row];
    // LibTorch opens an op record_param_comms around each collective. If both
    // are recorded, they have the same times and must be one event in the file.
    for (RowId op = communication.op; op != kNone;
         op = trace.ops()[op].parent) {
      const Op& candidate = trace.ops()[op];
      if (candidate.begin_ns != communication.begin_ns) break;
      if (candidate.end_ns != communication.end_ns ||
          trace.name(candidate.name) != "record_param_comms" ||
          communication_on_op_.contains(op)) {
        continue;
      }
      communication_on_op_.emplace(op, row);
      op_under_[row] = op;
      break;
    }
  }
  const auto mark = [&](const DeviceWork& work) {
    if (work.call != kNone) launched_[work.call] = true;
  };
  for (const Kernel& kernel : trace.kernels()) mark(kernel);
  for (const Copy& copy : trace.copies()) mark(copy);
  for (const Memset& set : trace.memsets()) mark(set);
  FindCollectives(flavour);
}

// Finds the id that a collective's kernel and launch carry. In flavour tb it is
// that of the "nccl:..." mark, by which the plugin counts the kernel as
// communication. In flavour kineto it is that of record_param_comms.
void ChromeLinks::FindCollectives(ChromeFlavour flavour) {
  std::map<RowId, std::vector<RowId>> marks;  // by thread
  for (RowId row = 0; row < trace_.ranges().size(); ++row) {
    const Range& range = trace_.ranges()[row];
    if (IsCollectiveMark(trace_.name(range.name)))
      marks[range.thread].push_back(row);
  }
  for (const Kernel& kernel : trace_.kernels()) {
    if (kernel.call == kNone) continue;
    const bool is_collective = kernel.communication != kNone ||
                               trace_.name(kernel.name).starts_with("nccl");
    if (!is_collective) continue;
    if (flavour == ChromeFlavour::kKineto) {
      if (kernel.communication != kNone)
        collective_of_call_[kernel.call] =
            OfCommunication(kernel.communication);
      continue;
    }
    const RuntimeCall& call = trace_.runtime_calls()[kernel.call];
    const RowId range =
        LastAround(trace_.ranges(), marks[call.thread], call.begin_ns);
    if (range != kNone) collective_of_call_[kernel.call] = OfRange(range);
  }
}

int64_t ChromeLinks::OfCommunication(RowId row) const {
  if (RidesOnOp(row)) return OfOp(op_under_[row]);
  return communication_base_ + row;
}

int64_t ChromeLinks::OfCall(RowId call) const {
  const auto found = collective_of_call_.find(call);
  if (found != collective_of_call_.end()) return found->second;
  const RowId op = trace_.runtime_calls()[call].op;
  return op == kNone ? 0 : OfOp(op);
}

int64_t ChromeLinks::OfWork(const DeviceWork& work) const {
  if (work.call != kNone) return OfCall(work.call);
  return work.op == kNone ? 0 : OfOp(work.op);
}

RowId ChromeLinks::CommunicationOn(RowId op) const {
  if (communication_on_op_.empty()) return kNone;
  const auto found = communication_on_op_.find(op);
  return found == communication_on_op_.end() ? kNone : found->second;
}

RowId ChromeLinks::CommunicationAround(const Range& range) const {
  RowId best = kNone;
  const auto& rows = trace_.communications();
  auto after = std::partition_point(
      rows.begin(), rows.end(),
      [&](const Communication& row) { return row.begin_ns <= range.begin_ns; });
  while (after != rows.begin() && best == kNone) {
    --after;
    if (after->thread == range.thread && after->end_ns >= range.begin_ns)
      best = static_cast<RowId>(after - rows.begin());
    // Bounds the search: no communication begins more than a second before
    // its mark.
    if (range.begin_ns - after->begin_ns > 1'000'000'000) break;
  }
  return best;
}

}  // namespace stepscope
