#include "nvtx_decode.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nvtx_ranges.h"
#include "nvtx_slots.h"
#include "nvtx_text.h"

namespace stepscope {
namespace {

class Decoder {
 public:
  Decoder(const SlotLog& log, const ClockMap& clock, const NvtxNameTable& names,
          TraceBuilder& builder)
      : log_(log), clock_(clock), names_(names), builder_(builder) {}

  NvtxDecodeResult Run();

 private:
  struct End {
    Ticks ticks;
    const SlotThread* thread;
  };
  struct Moved {
    NvtxRange range;
    int64_t tid;
  };

  void CollectEnds(const SlotThread& thread);
  void DecodeThread(const SlotThread& thread);
  void AddNested(const SlotThread& thread);
  void AddMoved();
  void Add(const NvtxRange& range, RowId row, int64_t moved_from = -1);
  NameId NameOf(const Slot& slot, std::string_view category);
  NameId DetailOf(const Slot& slot, std::string_view category,
                  int64_t moved_from);
  std::string CategoryOf(const Slot& slot) const;
  Ticks TimeOf(const Slot& slot) const;
  void NameThings();

  const SlotLog& log_;
  const ClockMap& clock_;
  const NvtxNameTable& names_;
  TraceBuilder& builder_;
  NvtxDecodeResult result_;
  std::unordered_map<uint64_t, End> ends_;  // of started ranges, by their slot
  std::vector<NvtxRange> ranges_;           // of the thread being decoded
  std::vector<Moved> moved_;
  std::unordered_map<uint64_t, NameId> registered_;  // names, by handle
  // Details that consist of a domain and a category.
  std::map<std::pair<uint64_t, uint32_t>, NameId> details_;
};

template <typename Table, typename Key>
std::string_view Look(const Table& table, const Key& key) {
  const auto found = table.find(key);
  return found == table.end() ? std::string_view() : found->second;
}

void AppendField(std::string& detail, std::string_view field,
                 std::string_view value) {
  if (value.empty()) return;
  if (!detail.empty()) detail += ", ";
  detail += field;
  detail += '=';
  detail += value;
}

// Collects all ends before any thread is decoded, because a started range may
// end on any thread.
NvtxDecodeResult Decoder::Run() {
  NameThings();
  for (const SlotThread& thread : log_.threads) CollectEnds(thread);
  for (const SlotThread& thread : log_.threads) DecodeThread(thread);
  AddMoved();
  return result_;
}

void Decoder::NameThings() {
  for (const auto& [tid, name] : names_.threads) {
    builder_.thread(builder_.ThreadRow(log_.pid, tid)).name =
        builder_.Intern(name);
  }
  for (const NvtxStreamName& stream : names_.streams) {
    builder_.NameStream(static_cast<int32_t>(stream.context), stream.stream,
                        builder_.Intern(stream.name));
  }
}

// Word 1 of an end is the slot of the range's start, or 0 if that was not
// recorded.
void Decoder::CollectEnds(const SlotThread& thread) {
  WalkSlots(thread, [&](const Slot& slot) {
    if (TagOf(slot) == kNvtxSlot && NvtxEventOf(slot) == NvtxEvent::kEnd &&
        slot.word[1] != 0) {
      // If a range is ended twice, the first end counts.
      const End ours{TimeOf(slot), &thread};
      End& end = ends_.try_emplace(slot.word[1], ours).first->second;
      if (ours.ticks < end.ticks) end = ours;
    }
  });
}

// Nothing is recorded after the window closed, so later times are cut to it.
Ticks Decoder::TimeOf(const Slot& slot) const {
  return std::min(slot.word[0], log_.closed);
}

std::string Decoder::CategoryOf(const Slot& slot) const {
  const uint32_t category = NvtxCategoryOf(slot);
  if (category == 0) return "";
  const std::string_view name =
      Look(names_.categories, std::pair(slot.word[1], category));
  return name.empty() ? std::to_string(category) : std::string(name);
}

// Returns the text of the range, or the category if there is no text.
NameId Decoder::NameOf(const Slot& slot, std::string_view category) {
  const uint64_t handle = slot.word[2];
  std::string_view text(reinterpret_cast<const char*>(&slot + 1),
                        FollowingBytes(slot));
  if (NvtxPayloadOf(slot) != NvtxPayload::kNone) {
    // The payload's bytes precede the text.
    text.remove_prefix(std::min(text.size(), kNvtxPayloadBytes));
  }
  // A registered string is interned once per handle.
  if (handle != 0) {
    if (const auto known = registered_.find(handle);
        known != registered_.end()) {
      return known->second;
    }
    text = Look(names_.strings, handle);
    if (!text.empty()) return registered_[handle] = builder_.Intern(text);
  }
  if (text.empty()) text = category;
  if (text.empty()) text = "NVTX range without a name";
  return builder_.Intern(text);
}

// The detail is made once per domain and category, because most ranges of a
// loop repeat them.
NameId Decoder::DetailOf(const Slot& slot, std::string_view category,
                         int64_t moved_from) {
  const NvtxPayload type = NvtxPayloadOf(slot);
  const bool is_plain = type == NvtxPayload::kNone && moved_from < 0;
  const std::pair key(slot.word[1], NvtxCategoryOf(slot));
  if (is_plain) {
    const auto known = details_.find(key);
    if (known != details_.end()) return known->second;
  }
  std::string detail;
  AppendField(detail, "domain", Look(names_.domains, slot.word[1]));
  AppendField(detail, "category", category);
  if (type != NvtxPayload::kNone) {
    if (FollowingBytes(slot) < kNvtxPayloadBytes ||
        static_cast<uint32_t>(type) >= kNvtxPayloadTypes) {
      ++result_.bad_records;
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, &slot + 1, kNvtxPayloadBytes);
      AppendField(detail, "payload", PayloadText(type, bits));
    }
  }
  if (moved_from >= 0) {
    // On an extra thread, only the detail shows the range's own thread.
    AppendField(detail, "thread", std::to_string(moved_from));
  }
  const NameId id = builder_.Intern(detail);
  if (is_plain) details_[key] = id;
  return id;
}

void Decoder::DecodeThread(const SlotThread& thread) {
  ranges_.clear();
  // Pushed ranges that are still open, per domain: indices into ranges_. NVTX
  // has a stack per thread and domain, so a pop ends the last push of its
  // domain.
  std::unordered_map<uint64_t, std::vector<size_t>> open;
  WalkSlots(thread, [&](const Slot& slot) {
    if (TagOf(slot) != kNvtxSlot) return;
    const Ticks at = TimeOf(slot);
    switch (NvtxEventOf(slot)) {
      case NvtxEvent::kPush:
        open[slot.word[1]].push_back(ranges_.size());
        ranges_.push_back({.begin = at, .slot = &slot});
        break;
      case NvtxEvent::kPop: {
        std::vector<size_t>& pushed = open[slot.word[1]];
        if (pushed.empty()) {
          ++result_.began_before;
          break;
        }
        NvtxRange& range = ranges_[pushed.back()];
        range.end = std::max(at, range.begin);
        pushed.pop_back();
        break;
      }
      case NvtxEvent::kStart: {
        ranges_.push_back({.begin = at, .slot = &slot});
        const auto end = ends_.find(reinterpret_cast<uint64_t>(&slot));
        if (end == ends_.end()) break;
        NvtxRange& range = ranges_.back();
        range.end = std::max(end->second.ticks, range.begin);
        range.ended_elsewhere = end->second.thread != &thread;
        ends_.erase(end);
        break;
      }
      case NvtxEvent::kMark:
        ranges_.push_back({.begin = at, .slot = &slot});
        ranges_.back().end = at;
        break;
      case NvtxEvent::kEnd:
        if (slot.word[1] == 0) ++result_.began_before;
        break;
      default:
        ++result_.bad_records;
    }
  });
  // Ranges that were still open when the window closed.
  for (NvtxRange& range : ranges_) {
    if (range.end != 0) continue;
    ++result_.unfinished;
    range.end = std::max(log_.closed, range.begin);
  }
  AddNested(thread);
}

// Ranges that nest become rows of their thread; AddMoved() adds the others.
void Decoder::AddNested(const SlotThread& thread) {
  if (ranges_.empty()) return;
  const RowId row = builder_.ThreadRow(log_.pid, thread.tid);
  // Sort by begin, longer ranges first, so that each range comes after those
  // around it.
  std::stable_sort(ranges_.begin(), ranges_.end(), NvtxBeginsBefore);
  NvtxNest nest;
  for (const NvtxRange& range : ranges_) {
    if (!range.ended_elsewhere && nest.Enter(range)) {
      Add(range, row);
      continue;
    }
    moved_.push_back({.range = range, .tid = thread.tid});
  }
}

// Adds each range to the first extra thread on which it nests.
void Decoder::AddMoved() {
  std::stable_sort(moved_.begin(), moved_.end(),
                   [](const Moved& a, const Moved& b) {
                     return NvtxBeginsBefore(a.range, b.range);
                   });
  std::vector<std::pair<NvtxNest, RowId>> lanes;
  for (const Moved& moved : moved_) {
    size_t lane = 0;
    while (lane < lanes.size() && !lanes[lane].first.Enter(moved.range)) ++lane;
    if (lane == lanes.size()) {
      const auto number = static_cast<int64_t>(lane);
      const RowId row =
          builder_.ThreadRow(log_.pid, kNvtxFirstLaneTid + number);
      builder_.thread(row).name =
          builder_.Intern("NVTX ranges " + std::to_string(number + 1));
      lanes.emplace_back(NvtxNest(), row);
      lanes.back().first.Enter(moved.range);
    }
    Add(moved.range, lanes[lane].second, moved.tid);
  }
}

void Decoder::Add(const NvtxRange& range, RowId row, int64_t moved_from) {
  const std::string category = CategoryOf(*range.slot);
  builder_.Add(Range{.begin_ns = clock_.ToNs(range.begin),
                     .end_ns = clock_.ToNs(range.end),
                     .name = NameOf(*range.slot, category),
                     .detail = DetailOf(*range.slot, category, moved_from),
                     .thread = row,
                     .kind = RangeKind::kNvtx});
}

}  // namespace

NvtxDecodeResult DecodeNvtx(const SlotLog& log, const ClockMap& clock,
                            const NvtxNameTable& names, TraceBuilder& builder) {
  return Decoder(log, clock, names, builder).Run();
}

}  // namespace stepscope
