#include "json_text.h"

#include <cmath>
#include <cstdio>

namespace measure {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(
      text, sizeof(text),
      std::abs(value) >= 100 && std::abs(value) < 1e15 ? "%.3f" : "%.6g",
      value);
  return text;
}

template <typename List, typename Write>
std::string Joined(const List& list, const Write& write) {
  std::string out = "[";
  for (const auto& entry : list) {
    out += (out.size() == 1 ? "" : ", ") + write(entry);
  }
  return out + "]";
}

}  // namespace

void JsonObject::Add(std::string_view key, std::string_view text) {
  AddRaw(key, Quoted(text));
}

void JsonObject::Add(std::string_view key, double value) {
  AddRaw(key, Number(value));
}

void JsonObject::Add(std::string_view key, const std::vector<double>& values) {
  AddRaw(key, Joined(values, Number));
}

void JsonObject::Add(std::string_view key,
                     const std::vector<std::string>& texts) {
  AddRaw(key, Joined(texts, Quoted));
}

void JsonObject::Add(std::string_view key,
                     const std::vector<JsonObject>& objects) {
  AddRaw(key, Joined(objects, [](const JsonObject& o) { return o.Text(); }));
}

void JsonObject::AddRaw(std::string_view key, std::string_view json) {
  if (!members_.empty()) members_ += ", ";
  members_ += Quoted(key) + ": ";
  members_ += json;
}

}  // namespace measure
