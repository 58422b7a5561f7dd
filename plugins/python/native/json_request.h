// A JSON object given by a caller, read key by key. Keys that are never asked
// for are an error, so that a misspelled key is noticed.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stepscope {

class JsonRequest {
 public:
  // Parses `text`. Null stands for {}. Errors: InvalidArgument.
  static absl::StatusOr<JsonRequest> Parse(const char* text);

  // Each function returns `otherwise` if the key is missing. For a value of the
  // wrong type, Check() returns an error.
  std::string Text(std::string_view key, std::string_view otherwise = "");
  int64_t Whole(std::string_view key, int64_t otherwise);
  bool Flag(std::string_view key, bool otherwise);
  std::vector<std::string> Texts(std::string_view key);
  // Returns the keys and values of an object. Values are in JSON form, but
  // texts have no quotes.
  std::vector<std::pair<std::string, std::string>> Members(
      std::string_view key);
  // Returns the index of the text in `choices`.
  size_t Choice(std::string_view key, const std::vector<std::string>& choices,
                size_t otherwise);
  // Returns the object under `key`, or an empty one if it is missing.
  JsonRequest Object(std::string_view key);

  // Returns the first error so far; InvalidArgument for a key that was never
  // asked for.
  absl::Status Check();

 private:
  JsonRequest() = default;
  bool Find(std::string_view key, simdjson::dom::element* value);
  void Wrong(std::string_view key, std::string_view must_be);

  std::shared_ptr<simdjson::dom::parser> parser_;  // owns the text
  simdjson::dom::object object_;
  bool empty_ = true;
  std::string prefix_;  // "schedule."
  std::set<std::string, std::less<>> asked_;
  absl::Status error_;
};

}  // namespace stepscope
