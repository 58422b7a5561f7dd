#include "json/json_events_reader.h"

#include <algorithm>
#include <cstring>

#include "json/char_masks.h"

namespace stepscope {
namespace {

constexpr size_t kGroup = 64;  // bytes that one step of the scan looks at
// The most events that one scan cuts. Events after a damaged one must be cut
// again. So after damage a scan cuts one event, the next scan twice as many,
// and so on.
constexpr size_t kMostBatch = 64;
// Limit the bytes that are scanned: kFreeLooks, plus kMostLooks times the bytes
// read so far. Beyond this limit the reader does not go back any more. In a
// file that is damaged all over, each event may reach to the end of the buffer,
// and without a limit scanning all of them would take hours.
constexpr uint64_t kMostLooks = 16;
constexpr uint64_t kFreeLooks = uint64_t{64} << 20;

// Bit i is set where the number of set bits in [0, i] is odd. With a bit for
// every quote, the result has a bit for every character inside a string
// (simdjson's method, without its carry-less multiplication).
uint64_t PrefixXor(uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

// True if `text` ends with the key `traceEvents` and its colon.
bool EndsWithEventsKey(std::string_view text) {
  constexpr std::string_view kKey = "\"traceEvents\"";
  const auto strip = [&] {
    while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  };
  strip();
  if (text.empty() || text.back() != ':') return false;
  text.remove_suffix(1);
  strip();
  return text.ends_with(kKey);
}

}  // namespace

JsonEventsReader::JsonEventsReader(BytesReader* bytes, const Limits& limits)
    : bytes_(bytes), limits_(limits) {}

// Three states: events that are ready, an event whose end is not in the buffer
// yet, and a search for a place to go on after damage.
std::string_view JsonEventsReader::Next() {
  while (next_ready_ == ready_.size()) {
    if (searching_) {
      // After damage, scanning goes on where an event seems to begin.
      const size_t found = FindEventBegin(scanned_);
      if (found != kNowhere) {
        RestartAt(found);
        continue;
      }
    } else if (HasGroup()) {
      ready_.clear();
      next_ready_ = 0;
      Scan();
      continue;
    } else if (event_begin_ != kNowhere &&
               (at_end_ || filled_ - event_begin_ > limits_.event_bytes)) {
      // The event has no end in the buffer. If another one begins inside it,
      // its own end is damaged; otherwise the file is truncated here.
      const size_t found = FindEventBegin(event_begin_ + 1);
      if (found == kNowhere && at_end_) return {};
      ++lost_events_;
      searching_ = true;
      scanned_ = MayGoBackTo(found) ? found : filled_;
      continue;
    }
    if (place_ == Place::kDone || header_.size() > limits_.header_bytes ||
        !Refill()) {
      return {};
    }
  }
  last_ = ready_[next_ready_++];
  last_end_ = base_ + last_.end;
  return {buffer_.data() + last_.begin, last_.end - last_.begin};
}

// After a missing quote the scan takes strings for structure and structure for
// strings, so it may have swallowed the events that follow. This checks whether
// the next event begins where the scan expects it.
void JsonEventsReader::Distrust() {
  const size_t found = FindEventBegin(last_.begin + 1);
  // No other event follows in the buffer.
  if (found == kNowhere) return;
  const bool as_expected = next_ready_ < ready_.size()
                               ? found == ready_[next_ready_].begin
                               : found >= std::min(event_begin_, scanned_);
  if (!as_expected && MayGoBackTo(found)) RestartAt(found);
}

// `at` may be kNowhere.
bool JsonEventsReader::MayGoBackTo(size_t at) const {
  return at != kNowhere &&
         looked_at_ <= kFreeLooks + kMostLooks * (base_ + filled_);
}

// Starts again at `at`, outside of any string, before an event.
void JsonEventsReader::RestartAt(size_t at) {
  ready_.clear();
  next_ready_ = 0;
  if (place_ != Place::kEvents) header_.resize(header_split_);
  place_ = Place::kEvents;
  in_string_ = escaped_ = searching_ = false;
  depth_ = 0;
  event_begin_ = kNowhere;
  batch_ = 1;
  scanned_ = at;
}

// Returns the first place from `from` on that looks like the start of an event:
// an object after a comma, a bracket or another object, with a key that events
// begin with.
size_t JsonEventsReader::FindEventBegin(size_t from) {
  // Consecutive damaged events ask for the same place again, so the last answer
  // is kept.
  if (sought_from_ <= from && from <= sought_begin_) return sought_begin_;
  sought_from_ = from;
  sought_begin_ = SearchEventBegin(from);
  looked_at_ += std::min(sought_begin_, filled_) - from;
  return sought_begin_;
}

size_t JsonEventsReader::SearchEventBegin(size_t from) const {
  const std::string_view text(buffer_.data(), filled_);
  for (size_t at = text.find('{', from); at != std::string_view::npos;
       at = text.find('{', at + 1)) {
    size_t before = at;
    while (before > 0 && IsBlank(text[before - 1])) --before;
    if (before > 0 && std::strchr(",[}", text[before - 1]) == nullptr) continue;
    size_t key = at + 1;
    while (key < filled_ && IsBlank(text[key])) ++key;
    const std::string_view rest = text.substr(key);
    for (std::string_view first :
         {"\"ph\"", "\"name\"", "\"cat\"", "\"pid\"", "\"ts\""}) {
      if (rest.starts_with(first)) return at;
    }
  }
  return kNowhere;
}

// Drops what was used and reads on; false if there is nothing more to read. An
// event that has begun but not ended stays in the buffer.
bool JsonEventsReader::Refill() {
  if (at_end_) return false;
  size_t keep = std::min(event_begin_, scanned_);
  if (searching_) keep = filled_ > kGroup ? filled_ - kGroup : 0;
  keep = std::min(keep, filled_);
  if (place_ == Place::kHeader || place_ == Place::kTail)
    header_from_ -= std::min(header_from_, keep);
  if (keep > 0)
    std::memmove(buffer_.data(), buffer_.data() + keep, filled_ - keep);
  filled_ -= keep;
  scanned_ = searching_ ? 0 : scanned_ - keep;
  base_ += keep;
  if (event_begin_ != kNowhere)
    event_begin_ = searching_ ? kNowhere : event_begin_ - keep;
  ready_.clear();
  next_ready_ = 0;
  sought_from_ = kNowhere;
  if (buffer_.size() < filled_ + limits_.block_bytes + kPadding + kGroup)
    buffer_.resize(filled_ + limits_.block_bytes + kPadding + kGroup);
  const size_t count =
      bytes_->Read(buffer_.data() + filled_, limits_.block_bytes);
  filled_ += count;
  at_end_ = count == 0;
  std::memset(buffer_.data() + filled_, 0, kPadding + kGroup);
  return true;
}

// True if there is a group to scan. At the end of the file the last group is
// padded with zeros, which the scan ignores.
bool JsonEventsReader::HasGroup() const {
  return place_ != Place::kDone &&
         (scanned_ + kGroup <= filled_ || (at_end_ && scanned_ < filled_));
}

// Tracks strings and brackets through the whole groups in the buffer, until
// some events are ready.
void JsonEventsReader::Scan() {
  const size_t begin = scanned_;
  while (HasGroup() && ready_.size() < batch_) {
    const CharMasks masks = MasksOf(buffer_.data() + scanned_);
    uint64_t quotes = masks.quotes;
    // A backslash escapes the character after it, and an escaped backslash
    // escapes nothing. `escaped_` carries over to the next group.
    if (masks.backslashes != 0 || escaped_) {
      uint64_t escaped = escaped_ ? 1 : 0;
      escaped_ = false;
      for (uint64_t left = masks.backslashes; left != 0; left &= left - 1) {
        const int at = __builtin_ctzll(left);
        if ((escaped >> at) & 1) continue;
        if (at == 63) {
          escaped_ = true;
        } else {
          escaped |= uint64_t{2} << at;
        }
      }
      quotes &= ~escaped;
    }
    const uint64_t strings =
        PrefixXor(quotes) ^ (in_string_ ? ~uint64_t{0} : 0);
    in_string_ = strings >> 63;
    const size_t group = scanned_;
    for (uint64_t left = masks.brackets & ~strings; left != 0;
         left &= left - 1) {
      const size_t at = group + static_cast<size_t>(__builtin_ctzll(left));
      OnBracket(buffer_[at], at);
    }
    scanned_ += kGroup;
  }
  batch_ = std::min(2 * batch_, kMostBatch);
  looked_at_ += scanned_ - begin;
  scanned_ = std::min(scanned_, filled_);
  if (place_ == Place::kHeader || place_ == Place::kTail) KeepHeader(scanned_);
}

void JsonEventsReader::KeepHeader(size_t end) {
  if (end > header_from_)
    header_.append(buffer_, header_from_, end - header_from_);
  header_from_ = std::max(header_from_, end);
}

// The scan looks only at brackets outside strings, because they decide where an
// event begins and ends.
void JsonEventsReader::OnBracket(char bracket, size_t at) {
  const bool opens = bracket == '{' || bracket == '[';
  switch (place_) {
    case Place::kStart:
      header_from_ = at;
      if (bracket == '[') {
        is_array_ = found_events_ = true;
        place_ = Place::kEvents;
      } else {
        depth_ = 1;
        place_ = Place::kHeader;
      }
      return;
    case Place::kHeader:
      if (bracket == '[' && depth_ == 1) {
        KeepHeader(at);
        if (EndsWithEventsKey(header_)) {
          header_split_ = header_.size();
          found_events_ = true;
          place_ = Place::kEvents;
          depth_ = 0;
          return;
        }
      }
      depth_ += opens ? 1 : -1;
      if (depth_ <= 0) {
        KeepHeader(at + 1);
        place_ = Place::kDone;
      }
      return;
    case Place::kEvents:
      return OnEventBracket(bracket, at);
    case Place::kTail:
      depth_ += opens ? 1 : -1;
      if (depth_ <= 0) {
        KeepHeader(at + 1);
        place_ = Place::kDone;
      }
      return;
    case Place::kDone:
      return;
  }
}

void JsonEventsReader::OnEventBracket(char bracket, size_t at) {
  if (bracket == '{' || bracket == '[') {
    if (depth_++ == 0 && bracket == '{') event_begin_ = at;
    return;
  }
  if (depth_ == 0) {
    if (bracket != ']') return;  // stray, after an event that ended too early
    header_from_ = at + 1;
    depth_ = 1;
    place_ = is_array_ ? Place::kDone : Place::kTail;
    return;
  }
  if (--depth_ == 0 && event_begin_ != kNowhere) {
    ready_.push_back({event_begin_, at + 1});
    event_begin_ = kNowhere;
  }
}

std::string JsonEventsReader::header() const {
  if (is_array_ || header_.empty()) return "{}";
  if (!found_events_ || place_ != Place::kDone) return header_before_events();
  return header_.substr(0, header_split_) + "[]" +
         header_.substr(header_split_);
}

std::string JsonEventsReader::header_before_events() const {
  if (is_array_ || header_.empty()) return "{}";
  if (!found_events_) return header_;
  return header_.substr(0, header_split_) + "[]}";
}

}  // namespace stepscope
