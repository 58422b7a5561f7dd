#include "report/json_text.h"

#include <stepscope/compiled_kernel.h>
#include <stepscope/printable.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace stepscope {
namespace {

// The length of the valid UTF-8 character at the front of `text`; 0 if none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  // 0x80 to 0xc1 begin no character: they continue one, or encode ASCII in two
  // bytes.
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Not UTF-8: overlong forms, surrogates, and values above U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string JsonText::ValidUtf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    // Each byte that belongs to no character becomes a U+FFFD of its own.
    const size_t length = CharacterLength(text);
    valid +=
        length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return valid;
}

void JsonText::Open(char bracket) {
  Separate();
  text_ += bracket;
  first_ = true;
  ++depth_;
}

void JsonText::Close(char bracket) {
  --depth_;
  // Empty lists and objects stay on one line.
  if (!first_) NewLine();
  text_ += bracket;
  first_ = false;
}

void JsonText::Key(std::string_view key) {
  Separate();
  Quote(key);
  text_ += ": ";
  after_key_ = true;
}

void JsonText::Value(std::string_view text) {
  Separate();
  Quote(text);
}

void JsonText::Value(double value) {
  // JSON has no infinity and no NaN.
  if (!std::isfinite(value)) return Raw("null");
  char buffer[32];
  // The shortest text that reads back as the same number. Adding 0 turns -0
  // into 0.
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value + 0.0).ptr;
  Raw(std::string_view(buffer, static_cast<size_t>(end - buffer)));
}

void JsonText::Raw(std::string_view text) {
  Separate();
  text_ += text;
}

void JsonText::NewLine() {
  text_ += '\n';
  text_.append(2 * depth_, ' ');
}

void JsonText::Separate() {
  // A value after its key needs no comma, because the key already wrote one.
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (depth_ == 0) return;
  if (!first_) text_ += ',';
  first_ = false;
  NewLine();
}

void JsonText::Quote(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const char c = text[0];
    if (length == 0) {
      // A name may hold any bytes; JSON must be UTF-8.
      text_ += "\xef\xbf\xbd";
    } else if (length > 1) {
      // Characters that a viewer would act on are escaped. To a JSON parser,
      // the escape is the same character.
      const std::string shown = Printable(text.substr(0, length));
      text_ += shown.starts_with("\\u") ? shown : text.substr(0, length);
    } else if (c == '"' || c == '\\') {
      (text_ += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text_ += "\\u00";
      (text_ += kHex[c >> 4]) += kHex[c & 15];
    } else {
      text_ += c;
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  text_ += '"';
}

// Only kernels of torch.compile name the operators that they fused; other rows
// do not get the key.
void WriteFusedOps(std::string_view name, JsonText& json) {
  const std::optional<CompiledKernel> kernel = ParseCompiledKernel(name);
  if (kernel.has_value()) json.Texts("fused_ops", kernel->ops);
}

}  // namespace stepscope
