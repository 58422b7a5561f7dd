#include "range_decode.h"

#include <stepscope/slot_ends.h>

namespace stepscope {
namespace {

// A range that the program named may be a step mark of torch.profiler
// ("ProfilerStep#12"). It then becomes a row of the steps table instead; with
// `has_steps` it is left out, because each step would count twice.
void AddRange(const Slot& slot, RowId thread, const ClockMap& clock,
              bool has_steps, SlotEnds& ends, TraceBuilder& builder) {
  const auto fields = std::bit_cast<TextFields>(slot.word[2]);
  const Texts texts = TextsOf(slot);
  const int64_t begin_ns = clock.ToNs(slot.word[0]);
  const int64_t end_ns = clock.ToNs(ends.Of(slot).ticks);
  if (fields.about == kClassifyLater) {
    if (const int64_t number = StepNumber(texts.name); number >= 0) {
      if (has_steps) return;
      builder.Add(Step{.begin_ns = begin_ns,
                       .end_ns = end_ns,
                       .number = number,
                       .thread = thread});
      return;
    }
  }
  builder.Add(Range{.begin_ns = begin_ns,
                    .end_ns = end_ns,
                    .name = builder.Intern(texts.name),
                    .detail = builder.Intern(texts.detail),
                    .thread = thread,
                    .kind = fields.about == kClassifyLater
                                ? ClassifyRange(texts.name)
                                : static_cast<RangeKind>(fields.about)});
}

}  // namespace

int64_t DecodeRanges(const SlotLog& log, const ClockMap& clock,
                     TraceBuilder& builder) {
  SlotEnds ends(log);  // LibTorch's user scopes may end on another thread
  const bool has_steps = !builder.steps().empty();
  int64_t bad_records = 0;
  for (const SlotThread& thread : log.threads) {
    const RowId row = builder.ThreadRow(log.pid, thread.tid);
    if (!thread.name.empty() && builder.thread(row).name == 0) {
      builder.thread(row).name = builder.Intern(thread.name);
    }
    // Skip the records of other sources: their collectors decode them. A record
    // whose length is invalid ends its chunk. It is counted here, once for all
    // sources.
    bad_records += WalkSlots(thread, [&](const Slot& slot) {
      if (TagOf(slot) == kRangeSlot)
        AddRange(slot, row, clock, has_steps, ends, builder);
    });
  }
  return bad_records;
}

}  // namespace stepscope
