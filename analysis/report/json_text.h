// JsonText: indented JSON, one member per line. The output is valid JSON in
// valid UTF-8 whatever bytes come in: invalid bytes become U+FFFD, and numbers
// that JSON cannot express (NaN, infinity) become null.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace stepscope {

// The caller opens and closes brackets in pairs. One thread at a time.
class JsonText {
 public:
  // `bracket` is one of { } [ ].
  void Open(char bracket);
  void Close(char bracket);
  // The next Value() or Open() belongs to `key`.
  void Key(std::string_view key);

  void Value(std::string_view text);
  void Value(const char* text) { Value(std::string_view(text)); }
  void Value(const std::string& text) { Value(std::string_view(text)); }
  void Value(bool value) { Raw(value ? "true" : "false"); }
  void Value(int64_t value) { Raw(std::to_string(value)); }
  void Value(int32_t value) { Raw(std::to_string(value)); }
  void Value(double value);
  void Null() { Raw("null"); }

  template <typename T>
  void Field(std::string_view key, const T& value) {
    Key(key);
    Value(value);
  }
  template <typename List>
  void Texts(std::string_view key, const List& list) {
    Key(key);
    Open('[');
    for (const auto& entry : list) Value(entry);
    Close(']');
  }
  // Returns `text` with invalid UTF-8 replaced by U+FFFD, as in JSON.
  static std::string ValidUtf8(std::string_view text);

  // The whole text with a trailing newline; leaves the writer empty.
  std::string Take() { return std::move(text_) + "\n"; }

 private:
  void Raw(std::string_view text);
  void NewLine();
  void Separate();
  void Quote(std::string_view text);

  std::string text_;
  size_t depth_ = 0;
  bool first_ = true;
  bool after_key_ = false;
};

// Adds `"fused_ops": ["add", "relu"]` to the open object; adds nothing if
// `name` is not the name of a compiled kernel (compiled_kernel.h).
void WriteFusedOps(std::string_view name, JsonText& json);

}  // namespace stepscope
