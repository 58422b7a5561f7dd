#include "report/page/page_data.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <vector>

namespace stepscope {
namespace {

constexpr std::string_view kEllipsis = "\xe2\x80\xa6";

// Keys whose texts are sentences or code.
constexpr auto kSentences = std::to_array<std::string_view>(
    {"evidence", "assumption", "cpp", "python", "wrong_if", "why", "why_not",
     "detail", "reference", "also", "headline", "plan", "held_back", "notes",
     "unanswered", "gains", "verdict", "doubt", "text"});

// Lists that grow with the recording, so that the page must cut them.
constexpr auto kLongLists =
    std::to_array<std::string_view>({"step_times", "memory_peaks"});

bool IsContinuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// Reads JSON token by token and writes what is kept.
class PageDataWriter {
 public:
  PageDataWriter(std::string_view json, const PageLimits& limits)
      : json_(json), limits_(limits) {}

  std::string Run() {
    out_.reserve(json_.size() / 2);
    while (at_ < json_.size()) Token();
    return std::move(out_);
  }

 private:
  // An open list or object.
  struct Level {
    bool is_list = false;
    bool is_long = false;    // one of kLongLists
    bool sentences = false;  // a list of them
    size_t elements = 0;     // begun
  };

  void Token();
  void Open(char bracket);
  void Text();
  void Number();
  void SkipText();
  void Character(std::string_view one);
  // True while reading elements after the last one that is kept.
  bool Skips() const { return skip_depth_ > 0; }
  void Put(std::string_view text) {
    if (!Skips()) out_ += text;
  }

  const std::string_view json_;
  const PageLimits& limits_;
  size_t at_ = 0;
  std::string out_;
  std::vector<Level> levels_;
  std::string_view key_;    // the last key
  bool after_key_ = false;  // the value of key_ comes next
  // While the rest of a list is left out: the number of open levels at which
  // that list ends. Else 0.
  size_t skip_depth_ = 0;
};

void PageDataWriter::Token() {
  const char c = json_[at_];
  switch (c) {
    case ' ':
    case '\n':
      ++at_;
      return;
    case '{':
    case '[':
      return Open(c);
    case '}':
    case ']':
      // The list whose rest was left out ends here, and its bracket is kept.
      if (skip_depth_ == levels_.size()) skip_depth_ = 0;
      levels_.pop_back();
      break;
    case ',':
      after_key_ = false;
      // Leaves out further elements of a full list, and their commas.
      if (Level& level = levels_.back();
          level.is_long && ++level.elements >= limits_.rows && !Skips()) {
        skip_depth_ = levels_.size();
      }
      break;
    case ':':
      after_key_ = true;
      break;
    case '"':
      return Text();
    case '-':
      return Number();
    default:
      if (c >= '0' && c <= '9') return Number();
      break;  // a letter of true, false or null
  }
  Put(json_.substr(at_++, 1));
}

void PageDataWriter::Open(char bracket) {
  // after_key_ is true only for the list directly after the key, not for a list
  // inside it.
  levels_.push_back({.is_list = bracket == '[',
                     .is_long = bracket == '[' && after_key_ &&
                                std::ranges::count(kLongLists, key_) > 0,
                     .sentences = std::ranges::count(kSentences, key_) > 0});
  after_key_ = false;
  Put(json_.substr(at_++, 1));
}

// Rounds fractions, because digits that nobody reads would take half of a page.
void PageDataWriter::Number() {
  const size_t end =
      std::min(json_.find_first_not_of("+-.0123456789eE", at_), json_.size());
  const std::string_view text = json_.substr(at_, end - at_);
  at_ = end;
  constexpr size_t kShort = 8;
  double value = 0;
  // Whole numbers stay exact: they may be ids, or times in ns.
  if (text.size() <= kShort || text.find('.') == std::string_view::npos ||
      std::from_chars(text.data(), text.data() + text.size(), value).ec !=
          std::errc()) {
    return Put(text);
  }
  char rounded[32];
  std::snprintf(rounded, sizeof(rounded), "%.7g", value);
  Put(rounded);
}

void PageDataWriter::Text() {
  const bool is_key =
      !after_key_ && !levels_.empty() && !levels_.back().is_list;
  const bool is_sentence = levels_.back().is_list
                               ? levels_.back().sentences
                               : std::ranges::count(kSentences, key_) > 0;
  const size_t most = is_sentence ? limits_.sentence : limits_.name;
  const size_t begin = ++at_;
  Put("\"");
  size_t written = 0;
  while (json_[at_] != '"') {
    // An escape, and a character of several bytes, is never cut and counts as
    // one character.
    size_t length = 1;
    if (json_[at_] == '\\') {
      length = json_[at_ + 1] == 'u' ? 6 : 2;
    } else {
      while (IsContinuation(json_[at_ + length])) ++length;
    }
    // Keys are never cut, because the script looks them up.
    if (!is_key && written == most) {
      Put(kEllipsis);
      SkipText();
      break;
    }
    Character(json_.substr(at_, length));
    ++written;
    at_ += length;
  }
  if (is_key) key_ = json_.substr(begin, at_ - begin);
  if (!is_key) after_key_ = false;
  ++at_;
  Put("\"");
}

// Moves to the quote that ends the text. Searches instead of reading character
// by character, because names may be megabytes long.
void PageDataWriter::SkipText() {
  while (true) {
    at_ = json_.find_first_of("\"\\", at_);
    if (json_[at_] == '"') return;
    at_ += 2;
  }
}

// Escapes characters that could end the data block or open a tag, and the two
// line ends that older JavaScript does not allow in a text.
void PageDataWriter::Character(std::string_view one) {
  if (one == "<") {
    Put("\\u003c");
  } else if (one == ">") {
    Put("\\u003e");
  } else if (one == "&") {
    Put("\\u0026");
  } else if (one == "\xe2\x80\xa8") {
    Put("\\u2028");
  } else if (one == "\xe2\x80\xa9") {
    Put("\\u2029");
  } else {
    Put(one);
  }
}

}  // namespace

std::string PageData(std::string_view json, const PageLimits& limits) {
  return PageDataWriter(json, limits).Run();
}

std::string HtmlText(std::string_view text, size_t most) {
  if (text.size() > most) {
    text = text.substr(0, most);
    // Removes the rest of a character that was cut in the middle.
    while (!text.empty() && IsContinuation(text.back())) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xc0)
      text.remove_suffix(1);
  }
  std::string escaped;
  for (char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (c == '"') {
      escaped += "&quot;";
    } else if (c == '\'') {
      escaped += "&#39;";
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\n') ||
               c == 0x7f) {
      escaped += ' ';
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace stepscope
