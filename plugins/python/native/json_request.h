// A JSON object given by a caller, read key by key; keys that nobody asked for
// are an error, so that a misspelled one does not pass unnoticed.
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
  // Null stands for {}. Errors: InvalidArgument.
  static absl::StatusOr<JsonRequest> Parse(const char* text);

  // Each returns `otherwise` where the key is missing. A value of another type
  // is the error of Check().
  std::string Text(std::string_view key, std::string_view otherwise = "");
  int64_t Whole(std::string_view key, int64_t otherwise);
  bool Flag(std::string_view key, bool otherwise);
  std::vector<std::string> Texts(std::string_view key);
  // Keys and values of an object, the values as their JSON; of texts without
  // the quotes.
  std::vector<std::pair<std::string, std::string>> Members(
      std::string_view key);
  // The index of the text in `choices`.
  size_t Choice(std::string_view key, const std::vector<std::string>& choices,
                size_t otherwise);
  // The object under `key`, empty where it is missing.
  JsonRequest Object(std::string_view key);

  // The first error so far; InvalidArgument for a key that was not asked for.
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
