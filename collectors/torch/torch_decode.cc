#include "torch_decode.h"

#include <stepscope/slot_ends.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "torch_input_words.h"
#include "torch_slots.h"

namespace stepscope {
namespace {

// Cuts the ends of inexact `ops` (one thread's, in pre-order) so that all ops
// nest: an op ends before its parent ends and before the next op begins.
void CutToNest(std::span<const size_t> inexact, std::vector<Op>& ops) {
  std::vector<bool> is_inexact(ops.size(), false);
  for (size_t index : inexact) is_inexact[index] = true;
  std::vector<size_t> open;
  for (size_t i = 0; i < ops.size(); ++i) {
    Op& op = ops[i];
    while (!open.empty()) {
      Op& outer = ops[open.back()];
      if (outer.end_ns <= op.begin_ns) {
        open.pop_back();
      } else if (outer.end_ns >= op.end_ns) {
        break;
      } else if (is_inexact[open.back()]) {
        outer.end_ns = std::max(outer.begin_ns, op.begin_ns);
        open.pop_back();
      } else {
        op.end_ns = outer.end_ns;
        break;
      }
    }
    open.push_back(i);
  }
}

class Decoder {
 public:
  Decoder(const SlotLog& log, const ClockMap& clock, const TorchStacks& stacks,
          TraceBuilder& builder)
      : log_(log),
        clock_(clock),
        builder_(builder),
        ends_(log),
        python_(stacks.python),
        matcher_(stacks.steps, stacks.python, builder) {}

  TorchDecodeResult Run(const Symbolizer& symbolize) {
    if (symbolize != nullptr) NameStacks(symbolize);
    NamePythonStacks();
    for (const SlotThread& thread : log_.threads) DecodeThread(thread);
    result_.stacks = matcher_.counts();
    result_.unfinished = ends_.unfinished();
    result_.ended_elsewhere = ends_.ended_elsewhere();
    return result_;
  }

 private:
  void NameStacks(const Symbolizer& symbolize);
  void NamePythonStacks();
  void DecodeThread(const SlotThread& thread);
  void AddOp(const Slot& slot, RowId thread);
  void AddMemory(const Slot& slot, RowId thread);
  void AddInputs(const Slot& slot);
  void AddStack();
  void AddPythonSample(const Slot& slot);
  void AddComms(const Slot& slot, RowId thread);
  NameId NameAt(const char* name);

  const SlotLog& log_;
  const ClockMap& clock_;
  TraceBuilder& builder_;
  TorchDecodeResult result_;
  SlotEnds ends_;
  std::unordered_map<const char*, NameId> names_;
  std::unordered_map<std::string_view, RowId> inputs_;  // by their words
  std::vector<RowId> stack_rows_;  // in the order of the slots
  size_t next_stack_ = 0;
  const PythonSamples& python_;
  std::vector<RowId> python_rows_;  // of the stacks, by sample
  StackMatcher matcher_;
  std::vector<StackSample> samples_;  // by op of ops_
  std::vector<Op> ops_;  // of the thread being decoded, in pre-order
  std::vector<Communication> communications_;
  std::vector<size_t> communication_ops_;
  std::vector<size_t> inexact_;  // ops whose end their thread did not see
};

// Walks the slots in the same order as DecodeThread(), so that the n-th stack
// here belongs to the n-th kStackSlot there.
void Decoder::NameStacks(const Symbolizer& symbolize) {
  std::vector<std::vector<uint64_t>> stacks;
  for (const SlotThread& thread : log_.threads) {
    WalkSlots(thread, [&](const Slot& slot) {
      if (TagOf(slot) != kStackSlot) return;
      const uint64_t* words = (&slot + 1)->word;
      stacks.emplace_back(words, words + slot.word[2]);
    });
  }
  if (stacks.empty()) return;
  for (const std::vector<std::string>& frames : symbolize(stacks)) {
    Stack stack;
    for (const std::string& frame : frames) {
      stack.frames.push_back(builder_.Intern(frame));
    }
    stack_rows_.push_back(
        stack.frames.empty() ? kNone : builder_.InternStack(std::move(stack)));
  }
}

void Decoder::NamePythonStacks() {
  std::vector<NameId> names;
  for (const std::string& frame : python_.frames) {
    names.push_back(builder_.Intern(frame));
  }
  for (const std::vector<uint32_t>& frames : python_.stacks) {
    Stack stack;
    for (uint32_t frame : frames) stack.frames.push_back(names[frame]);
    python_rows_.push_back(
        stack.frames.empty() ? kNone : builder_.InternStack(std::move(stack)));
  }
}

// Rows are held back until the whole thread has been read, because the op that
// an inexact end is cut to begins later, and stacks are matched over whole
// steps.
void Decoder::DecodeThread(const SlotThread& thread) {
  const RowId row = builder_.ThreadRow(log_.pid, thread.tid);
  if (thread.source_thread != 0) {
    builder_.thread(row).torch_thread = thread.source_thread;
  }
  ops_.clear();
  samples_.clear();
  communications_.clear();
  communication_ops_.clear();
  inexact_.clear();
  WalkSlots(thread, [&](const Slot& slot) {
    switch (TagOf(slot)) {
      case kOpSlot:
      case kTextOpSlot:
        AddOp(slot, row);
        break;
      case kMemorySlot:
      case kHostMemorySlot:
        AddMemory(slot, row);
        break;
      case kInputsSlot:
        AddInputs(slot);
        break;
      case kStackSlot:
        AddStack();
        break;
      case kPythonSlot:
        AddPythonSample(slot);
        break;
      case kCommsSlot:
        AddComms(slot, row);
        break;
      default:
        break;
    }
  });
  if (!inexact_.empty()) CutToNest(inexact_, ops_);
  matcher_.Match(ops_, samples_);
  for (const Op& op : ops_) builder_.Add(op);
  // Must come last, so that a communication gets the times of its op after the
  // cut above.
  for (size_t i = 0; i < communications_.size(); ++i) {
    communications_[i].begin_ns = ops_[communication_ops_[i]].begin_ns;
    communications_[i].end_ns = ops_[communication_ops_[i]].end_ns;
    builder_.Add(communications_[i]);
  }
}

// Looked up by address, because a schema has only one text. The usual op then
// needs no hash of its name.
NameId Decoder::NameAt(const char* name) {
  const auto [it, is_new] = names_.try_emplace(name, 0);
  if (is_new) it->second = builder_.Intern(name);
  return it->second;
}

void Decoder::AddOp(const Slot& slot, RowId thread) {
  const SlotEnds::End end = ends_.Of(slot);
  Op op;
  op.thread = thread;
  op.begin_ns = clock_.ToNs(slot.word[0]);
  op.end_ns = clock_.ToNs(end.ticks);
  op.sequence = TailOf(slot);
  if (TagOf(slot) == kOpSlot) {
    op.name = NameAt(reinterpret_cast<const char*>(slot.word[2]));
  } else {
    const auto fields = std::bit_cast<TextFields>(slot.word[2]);
    op.name = builder_.Intern(TextsOf(slot).name);
    op.kind = (fields.about & 1) != 0 ? OpKind::kBackward : OpKind::kOperator;
    op.forward_thread = fields.about >> 1;
  }
  if (end.is_inexact) inexact_.push_back(ops_.size());
  ops_.push_back(op);
  samples_.emplace_back();
}

void Decoder::AddMemory(const Slot& slot, RowId thread) {
  // A kHostMemorySlot is on the CPU, which has no reserved total.
  uint64_t totals[2] = {static_cast<uint64_t>(TailOf(slot)), 0};
  int64_t device = PackDevice(0, -1);
  if (TagOf(slot) == kMemorySlot) {
    std::copy_n((&slot + 1)->word, 2, totals);
    device = TailOf(slot);
  }
  builder_.Add(
      Allocation{.time_ns = clock_.ToNs(slot.word[0]),
                 .address = slot.word[1],
                 .bytes = static_cast<int64_t>(slot.word[2]),
                 .total_allocated_bytes = static_cast<int64_t>(totals[0]),
                 .total_reserved_bytes = static_cast<int64_t>(totals[1]),
                 .device_type = static_cast<int32_t>(device & 0xff),
                 .device = static_cast<int32_t>(device >> 8),
                 .thread = thread});
}

void Decoder::AddInputs(const Slot& slot) {
  if (ops_.empty() || ops_.back().inputs != kNone) return;
  const std::span<const uint64_t> words((&slot + 1)->word, slot.word[2]);
  // Most calls repeat the arguments of an earlier one, so compare the raw words
  // first.
  const std::string_view bytes(reinterpret_cast<const char*>(words.data()),
                               words.size_bytes());
  const auto [it, is_new] = inputs_.try_emplace(bytes, kNone);
  if (is_new) {
    OpInputs inputs;
    if (!DecodeInputs(words, builder_, inputs)) ++result_.bad_records;
    it->second = builder_.InternInputs(std::move(inputs));
  }
  ops_.back().inputs = it->second;
}

void Decoder::AddStack() {
  const size_t index = next_stack_++;
  if (!ops_.empty() && index < stack_rows_.size()) {
    samples_.back() = {.taken = true, .stack = stack_rows_[index]};
  }
}

void Decoder::AddPythonSample(const Slot& slot) {
  const auto sample = static_cast<size_t>(TailOf(slot));
  if (ops_.empty() || sample >= python_rows_.size()) {
    ++result_.bad_records;
    return;
  }
  samples_.back() = {.taken = true,
                     .stack = python_rows_[sample],
                     .python = static_cast<uint32_t>(sample)};
}

void Decoder::AddComms(const Slot& slot, RowId thread) {
  const uint64_t* words = (&slot + 1)->word;
  if (ops_.empty() || slot.word[2] < kCommsWordCount) {
    ++result_.bad_records;
    return;
  }
  std::string_view text(reinterpret_cast<const char*>(words + kCommsWordCount),
                        (slot.word[2] - kCommsWordCount) * sizeof(uint64_t));
  const auto take = [&](int index) {
    const size_t size = words[kCommsTextBytes] >> (16 * index) & 0xffff;
    const std::string_view part = text.substr(0, size);
    text.remove_prefix(part.size());
    return builder_.Intern(part);
  };
  Communication row;
  row.name = take(0);
  row.group_name = take(1);
  row.group_description = take(2);
  row.group_ranks = take(3);
  row.dtype = builder_.Intern(DtypeName(words[kCommsDtype]));
  row.in_elements = static_cast<int64_t>(words[kCommsInElements]);
  row.out_elements = static_cast<int64_t>(words[kCommsOutElements]);
  row.group_size = static_cast<int32_t>(words[kCommsGroupSize]);
  row.sequence = static_cast<int64_t>(words[kCommsSequence]);
  row.thread = thread;
  communications_.push_back(row);
  communication_ops_.push_back(ops_.size() - 1);
}

}  // namespace

TorchDecodeResult DecodeTorch(const SlotLog& log, const ClockMap& clock,
                              const TorchStacks& stacks,
                              TraceBuilder& builder) {
  return Decoder(log, clock, stacks, builder).Run(stacks.symbolize);
}

}  // namespace stepscope
