#include "chrome_pieces.h"

#include <algorithm>

namespace stepscope {
namespace {

// Returns the offset after the string that starts at `at`.
size_t StringEnd(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return text.size();
}

// Returns the offset after the value that starts at `at`: after its closing
// bracket, or before the next comma or outer bracket.
size_t ValueEnd(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = StringEnd(text, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;
      if (--depth == 0) return at + 1;
    }
    if (c == ',' && depth == 0) return at;
    ++at;
  }
  return at;
}

// Returns the offset after the "[" of the events; 0 if there is none.
size_t EventsBegin(std::string_view text) {
  const size_t key = text.find("\"traceEvents\"");
  const size_t bracket =
      text.find('[', key == std::string_view::npos ? 0 : key);
  return bracket == std::string_view::npos ? 0 : bracket + 1;
}

}  // namespace

ChromePieces CutChrome(std::string_view text) {
  ChromePieces pieces;
  size_t at = EventsBegin(text);
  pieces.head = text.substr(0, at);
  while (at < text.size() && text[at] != ']') {
    if (text[at] != '{') {
      ++at;
      continue;
    }
    const size_t end = ValueEnd(text, at);
    pieces.events.emplace_back(text.substr(at, end - at));
    at = end;
  }
  pieces.tail = text.substr(std::min(at, text.size()));
  return pieces;
}

std::string JoinChrome(const ChromePieces& pieces, size_t max_bytes) {
  std::string text = pieces.head;
  for (const std::string& event : pieces.events) {
    if (text.size() + event.size() + pieces.tail.size() + 2 > max_bytes) break;
    if (&event != &pieces.events.front()) text += ",\n";
    text += event;
  }
  text += pieces.tail;
  if (text.size() > max_bytes) text.resize(max_bytes);
  return text;
}

std::vector<ValuePlace> ValuesIn(std::string_view text) {
  std::vector<ValuePlace> places;
  std::string_view last_string;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '"') {
      const size_t end = StringEnd(text, at);
      last_string = text.substr(at + 1, end - at > 1 ? end - at - 2 : 0);
      at = end;
    } else if (text[at] == ':') {
      ++at;
      while (at < text.size() && text[at] == ' ') ++at;
      places.push_back({at, ValueEnd(text, at), last_string});
    } else {
      ++at;
    }
  }
  return places;
}

}  // namespace stepscope
