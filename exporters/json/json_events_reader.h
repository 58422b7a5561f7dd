// JsonEventsReader: cuts a Chrome trace into its events without parsing them,
// so that a file of any size is read in bounded memory.
//
// The reader tracks strings and escapes 64 bytes at a time, so a brace in a
// name is not a boundary. What is not an event (the keys before and after
// `traceEvents`) is kept as one JSON object, header(). One thread drives a
// reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/bytes_reader.h"

namespace stepscope {

class JsonEventsReader {
 public:
  struct Limits {
    size_t block_bytes = size_t{1} << 20;
    size_t event_bytes = size_t{8} << 20;  // a longer event counts as damaged
    size_t header_bytes = size_t{64} << 20;
  };
  // The number of readable bytes after every text that Next() returns.
  static constexpr size_t kPadding = 64;

  explicit JsonEventsReader(BytesReader* bytes)
      : JsonEventsReader(bytes, Limits()) {}
  // `bytes` must outlive the reader.
  JsonEventsReader(BytesReader* bytes, const Limits& limits);

  // Returns the text of the next event, "{...}", or "" if there are no more.
  // Valid until the next call.
  std::string_view Next();

  // Call if the event that Next() returned is not valid JSON. A quote may be
  // missing, so its end cannot be trusted either. Goes back to the first place
  // after its start that looks like the start of another event.
  void Distrust();

  // True once `traceEvents` (or a top-level array) was found.
  bool found_events() const { return found_events_; }
  // True if the file is a list of events without an object around it.
  bool is_array() const { return is_array_; }
  // False if the file ended before its brackets were closed.
  bool complete() const { return place_ == Place::kDone; }
  // Events that were skipped because their end could not be found.
  int64_t lost_events() const { return lost_events_; }
  // Offset of the end of the last event returned, in decompressed bytes.
  uint64_t offset() const { return last_end_; }
  // Bytes scanned so far. After a damaged event, bytes are scanned again and
  // counted again, so this may exceed the size of the file.
  uint64_t looked_at_bytes() const { return looked_at_; }

  // Returns the top-level object with an empty `traceEvents`. For a truncated
  // file, returns header_before_events(). REQUIRES: Next() returned "".
  std::string header() const;
  // The same without the keys after the events.
  std::string header_before_events() const;

 private:
  enum class Place : uint8_t { kStart, kHeader, kEvents, kTail, kDone };
  struct Span {
    size_t begin;
    size_t end;
  };
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  bool Refill();
  bool HasGroup() const;
  void Scan();
  void OnBracket(char bracket, size_t at);
  void OnEventBracket(char bracket, size_t at);
  void KeepHeader(size_t end);
  void RestartAt(size_t at);
  bool MayGoBackTo(size_t at) const;
  size_t FindEventBegin(size_t from);
  size_t SearchEventBegin(size_t from) const;

  BytesReader* bytes_;
  const Limits limits_;
  std::string buffer_;  // [0, filled_) is text, followed by zeros
  size_t filled_ = 0;
  size_t scanned_ = 0;
  uint64_t base_ = 0;    // offset in the file of buffer_[0]
  bool at_end_ = false;  // no more bytes will come

  Place place_ = Place::kStart;
  bool in_string_ = false;
  bool escaped_ = false;  // the next character is escaped
  int64_t depth_ = 0;     // open brackets of the header or of the event
  size_t event_begin_ = kNowhere;  // start of an event not closed yet
  bool searching_ = false;         // seeks the next event after damage
  // The last search in this buffer: where from, and what it found.
  size_t sought_from_ = kNowhere;
  size_t sought_begin_ = kNowhere;
  size_t batch_ = 1;  // events that the next scan cuts
  uint64_t looked_at_ = 0;
  std::vector<Span> ready_;
  size_t next_ready_ = 0;
  Span last_ = {0, 0};

  std::string header_;
  size_t header_from_ = 0;   // first byte of the buffer not in header_
  size_t header_split_ = 0;  // where in header_ the events were
  bool found_events_ = false;
  bool is_array_ = false;  // no object around the events
  int64_t lost_events_ = 0;
  uint64_t last_end_ = 0;
};

}  // namespace stepscope
