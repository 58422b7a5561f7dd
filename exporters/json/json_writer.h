// JsonWriter: appends JSON tokens to a string; the one place that escapes.
//
// The output is valid JSON in valid UTF-8 for any input: invalid bytes become
// U+FFFD, control characters are escaped, and numbers that JSON lacks (NaN,
// Infinity) are written as null. The caller places the punctuation, except that
// Key() and Item() put the comma before all but the first member of the
// innermost open object or list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

// Appends `text` to `out` in quotes, escaped.
void AppendQuoted(std::string_view text, std::string& out);
// Returns `text` with invalid UTF-8 replaced by U+FFFD, for formats with other
// escapes.
std::string ValidUtf8(std::string_view text);

void AppendInt(int64_t value, std::string& out);
void AppendUint(uint64_t value, std::string& out);
// Both append the shortest decimal text that reads back as the same number.
void AppendDouble(double value, std::string& out);
void AppendFloat(float value, std::string& out);
// Appends whole nanoseconds as microseconds with exactly three decimals.
void AppendMicros(int64_t ns, std::string& out);

class JsonWriter {
 public:
  // Appends to `out`, which must outlive the writer.
  explicit JsonWriter(std::string* out) : out_(*out) {}

  void OpenObject() { Open('{'); }
  void CloseObject() { Close('}'); }
  void OpenList() { Open('['); }
  void CloseList() { Close(']'); }

  // Appends `"key": `. REQUIRES: key needs no escaping.
  void Key(std::string_view key);
  // Appends the comma before all list items but the first.
  void Item();

  void String(std::string_view text) { AppendQuoted(text, out_); }
  void Int(int64_t value) { AppendInt(value, out_); }
  void Uint(uint64_t value) { AppendUint(value, out_); }
  void Double(double value) { AppendDouble(value, out_); }
  void Null() { out_ += "null"; }

  void Field(std::string_view key, std::string_view text) {
    Key(key);
    String(text);
  }
  void Field(std::string_view key, int64_t value) {
    Key(key);
    Int(value);
  }

 private:
  void Open(char bracket) {
    out_ += bracket;
    first_ = true;
  }
  void Close(char bracket) {
    out_ += bracket;
    first_ = false;
  }

  std::string& out_;
  bool first_ = true;  // nothing yet in the innermost open object or list
};

}  // namespace stepscope
