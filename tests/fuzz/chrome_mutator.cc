// libFuzzer's mutator for Chrome traces: it moves, copies, invents and damages
// events and their values, also inside gzip. Now and then it lets libFuzzer
// mutate bytes, so that any input is reachable.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "chrome_pieces.h"
#include "chrome_words.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* bytes, size_t size,
                                   size_t max_size);

namespace stepscope {
namespace {

constexpr size_t kMostInflated = 4 << 20;

// Returns the content of one gzip stream; empty if it is not gzip or too large.
std::string Inflate(std::string_view bytes) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return "";
  std::string out(kMostInflated, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

std::string Deflate(std::string_view bytes) {
  z_stream stream = {};
  deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string Mutate(std::string_view text, size_t max_bytes) {
    ChromePieces pieces = CutChrome(text);
    if (pieces.head.empty()) pieces.head = "{\"traceEvents\": [";
    for (size_t edits = 1 + Below(4); edits > 0; --edits) Edit(pieces);
    std::string out = JoinChrome(pieces, max_bytes);
    if (Below(8) == 0) LetLibFuzzer(out, max_bytes);
    return out;
  }
  // Returns the events of both traces, one after the other or mixed.
  std::string Cross(std::string_view one, std::string_view two,
                    size_t max_bytes) {
    ChromePieces pieces = CutChrome(one);
    for (std::string& event : CutChrome(two).events) {
      const size_t at =
          Below(2) == 0 ? pieces.events.size() : At(pieces.events.size() + 1);
      pieces.events.insert(pieces.events.begin() + static_cast<int64_t>(at),
                           std::move(event));
    }
    return JoinChrome(pieces, max_bytes);
  }
  size_t Below(size_t count) { return random_() % count; }

 private:
  size_t At(size_t count) { return count == 0 ? 0 : Below(count); }
  template <typename List>
  const auto& Pick(const List& list) {
    return list[Below(std::size(list))];
  }
  void Edit(ChromePieces& pieces);
  void Repeat(ChromePieces& pieces);
  void MoveRun(ChromePieces& pieces);
  void EditValue(ChromePieces& pieces, std::string& text);
  void LetLibFuzzer(std::string& text, size_t max_bytes);
  std::string NewEvent();
  static std::string Later(std::string event, int64_t by);

  std::minstd_rand random_;
};

void Mutator::Edit(ChromePieces& pieces) {
  auto& events = pieces.events;
  const auto place = [&] {
    return events.begin() + static_cast<int64_t>(At(events.size() + 1));
  };
  switch (events.empty() ? 0 : Below(10)) {
    case 0:
      for (size_t i = 1 + Below(6); i > 0; --i) {
        events.insert(place(), NewEvent());
      }
      break;
    case 1:
    case 2:
    case 3:
    case 4:
      EditValue(pieces, events[At(events.size())]);
      break;
    case 5:
      events.erase(events.begin() + static_cast<int64_t>(At(events.size())));
      break;
    case 6:
      Repeat(pieces);
      break;
    case 7:
      MoveRun(pieces);
      break;
    case 8:
      if (Below(2) == 0 && pieces.head.starts_with('{')) {
        pieces.head.insert(1, Pick(kHeaderKeys));
      } else {
        EditValue(pieces, Below(4) == 0 ? pieces.tail : pieces.head);
      }
      break;
    default:
      LetLibFuzzer(events[At(events.size())], size_t{1} << 14);
  }
}

// Repeats some events later, as a training loop would.
void Mutator::Repeat(ChromePieces& pieces) {
  const size_t from = At(pieces.events.size());
  const size_t count = 1 + Below(pieces.events.size() - from);
  const int64_t period = int64_t{1} << Below(22);
  const size_t times = 1 + Below(Below(4) == 0 ? 50 : 5);
  for (size_t i = 1; i <= times && pieces.events.size() < 4000; ++i) {
    for (size_t k = from; k < from + count; ++k) {
      pieces.events.push_back(
          Later(pieces.events[k], period * static_cast<int64_t>(i)));
    }
  }
}

// Returns the event with a greater "ts", step number and correlation.
std::string Mutator::Later(std::string event, int64_t by) {
  const std::vector<ValuePlace> places = ValuesIn(event);
  std::string out = event;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    const bool is_time = place->key == "ts";
    if (!is_time && place->key != "correlation") continue;
    const std::string value =
        event.substr(place->begin, place->end - place->begin);
    char* end = nullptr;
    const int64_t number = std::strtoll(value.c_str(), &end, 10);
    if (end == value.c_str()) continue;
    out.replace(place->begin, place->end - place->begin,
                std::to_string(static_cast<int64_t>(
                    static_cast<uint64_t>(number) +
                    static_cast<uint64_t>(is_time ? by : by % 4096))) +
                    end);
  }
  return out;
}

void Mutator::MoveRun(ChromePieces& pieces) {
  const auto begin = pieces.events.begin();
  const size_t from = At(pieces.events.size());
  const size_t to = from + 1 + Below(pieces.events.size() - from);
  const size_t middle = from + Below(to - from);
  std::rotate(begin + static_cast<int64_t>(from),
              begin + static_cast<int64_t>(middle),
              begin + static_cast<int64_t>(to));
}

void Mutator::EditValue(ChromePieces& pieces, std::string& text) {
  const std::vector<ValuePlace> places = ValuesIn(text);
  if (places.empty()) return;
  const ValuePlace place = Pick(places);
  const size_t size = place.end - place.begin;
  std::string value = text.substr(place.begin, size);
  const size_t way = Below(8);
  if (way < 3) {
    value = Pick(kOddValues);
  } else if (way < 5 && !pieces.events.empty()) {
    // Takes another event's value of this key, or of any key.
    const std::string& other = pieces.events[At(pieces.events.size())];
    for (const ValuePlace& from : ValuesIn(other)) {
      if (from.key != place.key && Below(16) != 0) continue;
      value = other.substr(from.begin, from.end - from.begin);
    }
  } else if (way == 5) {
    value = std::to_string(static_cast<int64_t>(Below(1 << 20)) - 64);
  } else if (way == 6) {
    value += "." + std::to_string(Below(1000));
  } else {
    LetLibFuzzer(value, value.size() + 64);
  }
  text.replace(place.begin, size, value);
}

void Mutator::LetLibFuzzer(std::string& text, size_t max_bytes) {
  const size_t size = std::min(text.size(), max_bytes);
  text.resize(std::max(std::min(max_bytes, size + 64), size_t{1}));
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size,
                               text.size()));
}

std::string Mutator::NewEvent() {
  const EventKind kind = Pick(kEventKinds);
  std::string event = "{\"ph\": \"" + std::string(Pick(kPhases)) +
                      "\", \"cat\": \"" + std::string(kind.category) +
                      "\", \"name\": \"" + std::string(kind.name) + "\"";
  event += ", \"pid\": " + std::to_string(Below(3)) +
           ", \"tid\": " + std::to_string(Below(4)) +
           ", \"ts\": " + std::to_string(Below(5000));
  if (Below(16) != 0) event += ", \"dur\": " + std::to_string(Below(2000));
  if (Below(4) == 0) event += ", \"id\": " + std::to_string(Below(8));
  event += ", \"args\": {";
  for (size_t i = 0, count = Below(8); i < count; ++i) {
    const ArgWords& arg = Pick(kArgs);
    const bool odd = Below(12) == 0;
    event += std::string(i == 0 ? "\"" : ", \"") + std::string(arg.key) +
             "\": " + std::string(odd ? Pick(kOddValues) : arg.value);
  }
  return event + "}}";
}

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

// Copies `text` into the fuzzer's array. A gzip stream that is too long is cut.
size_t Give(const std::string& text, uint8_t* out, size_t max_size) {
  const size_t size = std::min(text.size(), max_size);
  std::memcpy(out, text.data(), size);
  return size;
}

}  // namespace
}  // namespace stepscope

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* bytes, size_t size,
                                          size_t max_size, unsigned seed) {
  stepscope::Mutator mutator(seed);
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const bool is_gzip = stepscope::IsGzip(text);
  if (is_gzip && mutator.Below(4) == 0) {
    return LLVMFuzzerMutate(bytes, size, max_size);
  }
  std::string next = mutator.Mutate(
      is_gzip ? stepscope::Inflate(text) : std::string(text), max_size);
  if (is_gzip || mutator.Below(256) == 0) next = stepscope::Deflate(next);
  return stepscope::Give(next, bytes, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size,
                                            const uint8_t* two, size_t two_size,
                                            uint8_t* out, size_t max_size,
                                            unsigned seed) {
  stepscope::Mutator mutator(seed);
  const auto plain = [](const uint8_t* bytes, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(bytes), size);
    return stepscope::IsGzip(text) ? stepscope::Inflate(text)
                                   : std::string(text);
  };
  return stepscope::Give(
      mutator.Cross(plain(one, one_size), plain(two, two_size), max_size), out,
      max_size);
}
