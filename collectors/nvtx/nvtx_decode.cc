#include "nvtx_decode.h"

#include <stepscope/slot_walk.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nvtx_slots.h"
#include "nvtx_text.h"

namespace stepscope {
namespace {

struct NvtxRange {
  Ticks begin = 0;
  Ticks end = 0;
  NameId name = 0;
  std::string detail = {};
  bool ended_elsewhere = false;
};

// The ranges opened last, inner ones last, that a new one may lie in.
class Nest {
 public:
  // True, and the range is in, if it overlaps none of the others halfway.
  // REQUIRES: called in order of begins, longer ranges first.
  bool Enter(const NvtxRange& range) {
    while (!ends_.empty() && ends_.back() <= range.begin) ends_.pop_back();
    if (!ends_.empty() && ends_.back() < range.end) return false;
    ends_.push_back(range.end);
    return true;
  }

 private:
  std::vector<Ticks> ends_;
};

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
  void Add(const NvtxRange& range, RowId thread);
  NvtxRange RangeFrom(const Slot& slot);
  void NameThings();

  const SlotLog& log_;
  const ClockMap& clock_;
  const NvtxNameTable& names_;
  TraceBuilder& builder_;
  NvtxDecodeResult result_;
  std::unordered_map<uint64_t, End> ends_;  // of started ranges, by their slot
  std::vector<NvtxRange> ranges_;           // of the thread being decoded
  std::vector<Moved> moved_;
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

void Decoder::CollectEnds(const SlotThread& thread) {
  WalkSlots(thread, [&](const Slot& slot) {
    if (KindOf(slot) == SlotKind::kNvtx &&
        NvtxEventOf(slot) == NvtxEvent::kEnd && slot.word[1] != 0) {
      // A range that is ended twice ends the first time.
      End& end = ends_.try_emplace(slot.word[1], End{slot.word[0], &thread})
                     .first->second;
      if (slot.word[0] < end.ticks) end = {slot.word[0], &thread};
    }
  });
}

NvtxRange Decoder::RangeFrom(const Slot& slot) {
  const char* following = reinterpret_cast<const char*>(&slot + 1);
  std::string_view text(following, FollowingBytes(slot));
  std::string payload;
  if (const NvtxPayload type = NvtxPayloadOf(slot);
      type != NvtxPayload::kNone) {
    if (text.size() < kNvtxPayloadBytes ||
        static_cast<uint32_t>(type) >= kNvtxPayloadTypes) {
      ++result_.bad_records;
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, text.data(), kNvtxPayloadBytes);
      payload = PayloadText(type, bits);
    }
    text.remove_prefix(std::min(text.size(), kNvtxPayloadBytes));
  }
  if (slot.word[2] != 0) text = Look(names_.strings, slot.word[2]);
  const uint32_t category = NvtxCategoryOf(slot);
  std::string category_name;
  if (category != 0) {
    category_name = Look(names_.categories, std::pair(slot.word[1], category));
    if (category_name.empty()) category_name = std::to_string(category);
  }
  if (text.empty()) text = category_name;
  if (text.empty()) text = "NVTX range without a name";

  NvtxRange range{.begin = slot.word[0], .name = builder_.Intern(text)};
  AppendField(range.detail, "domain", Look(names_.domains, slot.word[1]));
  AppendField(range.detail, "category", category_name);
  AppendField(range.detail, "payload", payload);
  return range;
}

void Decoder::DecodeThread(const SlotThread& thread) {
  ranges_.clear();
  // Pushed ranges still open, per domain: indices into ranges_.
  std::unordered_map<uint64_t, std::vector<size_t>> open;
  WalkSlots(thread, [&](const Slot& slot) {
    if (KindOf(slot) != SlotKind::kNvtx) return;
    const Ticks at = slot.word[0];
    switch (NvtxEventOf(slot)) {
      case NvtxEvent::kPush:
        open[slot.word[1]].push_back(ranges_.size());
        ranges_.push_back(RangeFrom(slot));
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
        ranges_.push_back(RangeFrom(slot));
        const auto end = ends_.find(reinterpret_cast<uint64_t>(&slot));
        if (end == ends_.end()) break;
        NvtxRange& range = ranges_.back();
        range.end = std::max(end->second.ticks, range.begin);
        range.ended_elsewhere = end->second.thread != &thread;
        ends_.erase(end);
        break;
      }
      case NvtxEvent::kMark:
        ranges_.push_back(RangeFrom(slot));
        ranges_.back().end = at;
        break;
      case NvtxEvent::kEnd:
        if (slot.word[1] == 0) ++result_.began_before;
        break;
      default:
        ++result_.bad_records;
    }
  });
  for (NvtxRange& range : ranges_) {
    if (range.end != 0) continue;
    ++result_.unfinished;
    range.end = std::max(log_.closed, range.begin);
  }
  AddNested(thread);
}

bool BeginsBefore(const NvtxRange& a, const NvtxRange& b) {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

// What nests becomes rows of its thread, the rest waits for a row of its own.
void Decoder::AddNested(const SlotThread& thread) {
  if (ranges_.empty()) return;
  const RowId row = builder_.ThreadRow(log_.pid, thread.tid);
  std::stable_sort(ranges_.begin(), ranges_.end(), BeginsBefore);
  Nest nest;
  for (NvtxRange& range : ranges_) {
    if (!range.ended_elsewhere && nest.Enter(range)) {
      Add(range, row);
      continue;
    }
    AppendField(range.detail, "thread", std::to_string(thread.tid));
    moved_.push_back({.range = std::move(range), .tid = thread.tid});
  }
}

// Each goes to the first extra row on which it nests.
void Decoder::AddMoved() {
  std::stable_sort(moved_.begin(), moved_.end(),
                   [](const Moved& a, const Moved& b) {
                     return BeginsBefore(a.range, b.range);
                   });
  std::vector<std::pair<Nest, RowId>> lanes;
  for (const Moved& moved : moved_) {
    size_t lane = 0;
    while (lane < lanes.size() && !lanes[lane].first.Enter(moved.range)) ++lane;
    if (lane == lanes.size()) {
      const auto number = static_cast<int64_t>(lane);
      const RowId row =
          builder_.ThreadRow(log_.pid, kNvtxFirstLaneTid + number);
      builder_.thread(row).name =
          builder_.Intern("NVTX ranges " + std::to_string(number + 1));
      lanes.emplace_back(Nest(), row);
      lanes.back().first.Enter(moved.range);
    }
    Add(moved.range, lanes[lane].second);
  }
}

void Decoder::Add(const NvtxRange& range, RowId thread) {
  builder_.Add(Range{.begin_ns = clock_.ToNs(range.begin),
                     .end_ns = clock_.ToNs(range.end),
                     .name = range.name,
                     .detail = builder_.Intern(range.detail),
                     .thread = thread,
                     .kind = RangeKind::kNvtx});
}

}  // namespace

NvtxDecodeResult DecodeNvtx(const SlotLog& log, const ClockMap& clock,
                            const NvtxNameTable& names, TraceBuilder& builder) {
  return Decoder(log, clock, names, builder).Run();
}

}  // namespace stepscope
