#include "json_request.h"

namespace stepscope {

namespace dom = simdjson::dom;

absl::StatusOr<JsonRequest> JsonRequest::Parse(const char* text) {
  JsonRequest request;
  if (text == nullptr) return request;
  request.parser_ = std::make_shared<dom::parser>();
  dom::element element;
  if (request.parser_->parse(std::string_view(text)).get(element) ||
      element.get(request.object_)) {
    return absl::InvalidArgumentError("the request is not a JSON object");
  }
  request.empty_ = false;
  return request;
}

// Returns true if the key is present. null counts as missing, because Python
// writes it for None. Remembers the key even if it is missing, because Check()
// reports keys that were never asked for.
bool JsonRequest::Find(std::string_view key, dom::element* value) {
  asked_.emplace(key);
  return !empty_ && !object_[key].get(*value) && !value->is_null();
}

void JsonRequest::Wrong(std::string_view key, std::string_view must_be) {
  if (!error_.ok()) return;  // later mistakes may follow from the first
  error_ = absl::InvalidArgumentError(prefix_ + std::string(key) + " must be " +
                                      std::string(must_be));
}

std::string JsonRequest::Text(std::string_view key,
                              std::string_view otherwise) {
  dom::element value;
  std::string_view text = otherwise;
  if (Find(key, &value) && value.get(text)) Wrong(key, "a string");
  return std::string(text);
}

int64_t JsonRequest::Whole(std::string_view key, int64_t otherwise) {
  dom::element value;
  int64_t number = otherwise;
  if (Find(key, &value) && value.get(number)) Wrong(key, "a whole number");
  return number;
}

bool JsonRequest::Flag(std::string_view key, bool otherwise) {
  dom::element value;
  bool flag = otherwise;
  if (Find(key, &value) && value.get(flag)) Wrong(key, "true or false");
  return flag;
}

std::vector<std::string> JsonRequest::Texts(std::string_view key) {
  std::vector<std::string> texts;
  dom::element value;
  if (!Find(key, &value)) return texts;
  dom::array list;
  if (value.get(list)) {
    Wrong(key, "a list of strings");
    return texts;
  }
  for (const dom::element item : list) {
    std::string_view text;
    if (item.get(text)) Wrong(key, "a list of strings");
    texts.emplace_back(text);
  }
  return texts;
}

std::vector<std::pair<std::string, std::string>> JsonRequest::Members(
    std::string_view key) {
  std::vector<std::pair<std::string, std::string>> members;
  dom::element value;
  if (!Find(key, &value)) return members;
  dom::object object;
  if (value.get(object)) {
    Wrong(key, "an object");
    return members;
  }
  // A text becomes its own words, and any other value its JSON form, so that 2
  // and "2" mean the same to ParseSetting().
  for (const auto [name, element] : object) {
    std::string_view text;
    members.emplace_back(name, element.get(text) ? simdjson::minify(element)
                                                 : std::string(text));
  }
  return members;
}

size_t JsonRequest::Choice(std::string_view key,
                           const std::vector<std::string>& choices,
                           size_t otherwise) {
  const std::string text = Text(key, choices[otherwise]);
  std::string list;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) return i;
    list += (i == 0                    ? ""
             : i + 1 == choices.size() ? " or "
                                       : ", ") +
            choices[i];
  }
  Wrong(key, list + ", not '" + text + "'");
  return otherwise;
}

JsonRequest JsonRequest::Object(std::string_view key) {
  JsonRequest inner;
  inner.prefix_ = prefix_ + std::string(key) + ".";
  dom::element value;
  if (!Find(key, &value)) return inner;
  inner.parser_ = parser_;
  inner.empty_ = value.get(inner.object_) != simdjson::SUCCESS;
  if (inner.empty_) Wrong(key, "an object");
  return inner;
}

// A key that was never asked for is misspelled, or from a newer caller.
// Ignoring it would mean doing something else than what was requested.
absl::Status JsonRequest::Check() {
  if (!error_.ok() || empty_) return error_;
  for (const auto [name, value] : object_) {
    if (!asked_.contains(name)) {
      return absl::InvalidArgumentError("unknown key '" + prefix_ +
                                        std::string(name) + "'");
    }
  }
  return absl::OkStatus();
}

}  // namespace stepscope
