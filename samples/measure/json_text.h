// JsonObject: a JSON object, written member by member.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace measure {

class JsonObject {
 public:
  void Add(std::string_view key, std::string_view text);
  void Add(std::string_view key, const char* text) {
    Add(key, std::string_view(text));
  }
  void Add(std::string_view key, std::same_as<bool> auto value) {
    AddRaw(key, value ? "true" : "false");
  }
  void Add(std::string_view key, int value) {
    AddRaw(key, std::to_string(value));
  }
  // With three digits after the point from 100 on, else with six in all; null
  // for what JSON has no number for.
  void Add(std::string_view key, double value);
  void Add(std::string_view key, const std::vector<double>& values);
  void Add(std::string_view key, const std::vector<std::string>& texts);
  void Add(std::string_view key, const JsonObject& object) {
    AddRaw(key, object.Text());
  }
  void Add(std::string_view key, const std::vector<JsonObject>& objects);

  std::string Text() const { return "{" + members_ + "}"; }

 private:
  void AddRaw(std::string_view key, std::string_view json);

  std::string members_;
};

}  // namespace measure
