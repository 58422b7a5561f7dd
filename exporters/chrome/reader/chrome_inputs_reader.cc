#include "chrome/reader/chrome_inputs_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

namespace stepscope {
namespace {

namespace dom = simdjson::dom;

constexpr int kDeepest = 16;  // lists inside lists; real ones have two

// Reads the list under `key`. False if there is none.
bool ListAt(dom::object object, std::string_view key, dom::array* list) {
  return object[key].get(*list) == simdjson::SUCCESS;
}

std::vector<dom::element> Elements(dom::object object, std::string_view key) {
  dom::array list;
  std::vector<dom::element> elements;
  if (ListAt(object, key, &list)) elements.assign(list.begin(), list.end());
  return elements;
}

// The whole numbers of a list; false if it holds anything else.
bool ToIntegers(dom::element element, std::vector<int64_t>* numbers) {
  dom::array list;
  if (element.get(list)) return false;
  for (dom::element item : list) {
    int64_t number = 0;
    if (item.get(number)) return false;
    numbers->push_back(number);
  }
  return true;
}

std::string_view TextOf(dom::element element) {
  std::string_view text;
  return element.get(text) == simdjson::SUCCESS ? text : std::string_view();
}

// Sets the dims and strides of one argument. `dims` are those of a tensor, or a
// list of them for a list of tensors. Kineto writes dims, types, strides and
// values of all arguments as four parallel lists.
void SetShape(dom::element dims, const dom::element* strides, int depth,
              Argument* argument) {
  std::vector<int64_t> numbers;
  if (ToIntegers(dims, &numbers)) {
    argument->dims = std::move(numbers);
    std::vector<int64_t> steps;
    if (strides != nullptr && ToIntegers(*strides, &steps))
      argument->strides = std::move(steps);
    return;
  }
  dom::array list;
  if (depth >= kDeepest || dims.get(list)) return;
  dom::array stride_list;
  const bool has_strides =
      strides != nullptr && strides->get(stride_list) == simdjson::SUCCESS;
  size_t at = 0;
  for (dom::element item : list) {
    dom::element stride;
    const bool found =
        has_strides && stride_list.at(at).get(stride) == simdjson::SUCCESS;
    SetShape(item, found ? &stride : nullptr, depth + 1,
             &argument->elements.emplace_back());
    ++at;
  }
}

// Reads one argument of `stepscope.inputs`, which is unambiguous.
void SetArgument(dom::object object, int depth, TraceBuilder* builder,
                 Argument* argument) {
  dom::element value;
  if (!object["type"].get(value))
    argument->type = builder->Intern(TextOf(value));
  if (!object["concrete"].get(value))
    argument->concrete = builder->Intern(TextOf(value));
  if (!object["dims"].get(value)) ToIntegers(value, &argument->dims);
  if (!object["strides"].get(value)) ToIntegers(value, &argument->strides);
  if (depth >= kDeepest) return;
  for (dom::element item : Elements(object, "elements")) {
    dom::object element;
    if (!item.get(element)) {
      SetArgument(element, depth + 1, builder,
                  &argument->elements.emplace_back());
    }
  }
}

void AppendMember(const char* key, const Field& field, std::string* out) {
  out->append(",\"").append(key).append("\":");
  if (field.type == Field::Type::kArray) {
    out->append(field.text);
  } else if (field.type == Field::Type::kText) {
    // Newer versions of Kineto write some lists as text. It stays text.
    out->append("\"").append(field.text).append("\"");
  } else {
    out->append("null");
  }
}

}  // namespace

struct ChromeInputsReader::Json {
  dom::parser parser;
};

ChromeInputsReader::ChromeInputsReader(TraceBuilder* builder)
    : builder_(builder), json_(std::make_unique<Json>()) {}
ChromeInputsReader::~ChromeInputsReader() = default;

// The texts of the lists are the key of a cache. A training loop repeats a few
// hundred of them, and parsing each only once makes shapes cost almost nothing.
RowId ChromeInputsReader::Inputs(const ChromeEvent& event) {
  if (!event.has(ArgKey::kInputDims) && !event.has(ArgKey::kInputType))
    return kNone;
  // Puts the unchanged texts of the lists into one small object, so that one
  // parse reads all of them.
  key_ = "{\"v\":1";
  if (event.has(ArgKey::kOurInputs)) {
    AppendMember("ours", event.arg(ArgKey::kOurInputs), &key_);
  } else {
    AppendMember("dims", event.arg(ArgKey::kInputDims), &key_);
    AppendMember("types", event.arg(ArgKey::kInputType), &key_);
    if (event.has(ArgKey::kInputStrides))
      AppendMember("strides", event.arg(ArgKey::kInputStrides), &key_);
    if (event.has(ArgKey::kConcreteInputs))
      AppendMember("concrete", event.arg(ArgKey::kConcreteInputs), &key_);
  }
  key_ += '}';
  const auto found = inputs_.find(key_);
  if (found != inputs_.end()) return found->second;
  const RowId row = ParseInputs(key_);
  inputs_.emplace(key_, row);
  return row;
}

RowId ChromeInputsReader::ParseInputs(const std::string& text) {
  dom::object object;
  if (json_->parser.parse(text).get(object)) return kNone;
  OpInputs inputs;
  for (dom::element item : Elements(object, "ours")) {
    dom::object argument;
    if (!item.get(argument))
      SetArgument(argument, 0, builder_, &inputs.arguments.emplace_back());
  }
  if (!inputs.arguments.empty())
    return builder_->InternInputs(std::move(inputs));

  const std::vector<dom::element> dims = Elements(object, "dims");
  const std::vector<dom::element> types = Elements(object, "types");
  const std::vector<dom::element> strides = Elements(object, "strides");
  const std::vector<dom::element> concrete = Elements(object, "concrete");
  inputs.arguments.resize(std::max(dims.size(), types.size()));
  for (size_t i = 0; i < inputs.arguments.size(); ++i) {
    Argument& argument = inputs.arguments[i];
    if (i < types.size()) argument.type = builder_->Intern(TextOf(types[i]));
    if (i < concrete.size())
      argument.concrete = builder_->Intern(TextOf(concrete[i]));
    if (i < dims.size())
      SetShape(dims[i], i < strides.size() ? &strides[i] : nullptr, 0,
               &argument);
  }
  return builder_->InternInputs(std::move(inputs));
}

// The frames are joined by ';'. If a frame itself contains a ';', our files
// also have a list of frames.
RowId ChromeInputsReader::CallStack(const ChromeEvent& event) {
  const Field ours = event.arg(ArgKey::kOurStack);
  const Field field =
      ours.type == Field::Type::kArray ? ours : event.arg(ArgKey::kCallStack);
  if (field.text.empty() || field.type == Field::Type::kScalar) return kNone;
  key_ = field.text;
  const auto found = stacks_.find(key_);
  if (found != stacks_.end()) return found->second;
  RowId row = kNone;
  if (field.type == Field::Type::kArray) {
    row = ParseStack(key_);
  } else {
    std::string scratch;
    std::string_view text = Unescape(key_, &scratch);
    Stack stack;
    while (!text.empty()) {
      const size_t end = std::min(text.find(';'), text.size());
      if (end > 0)
        stack.frames.push_back(builder_->Intern(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!stack.frames.empty()) row = builder_->InternStack(std::move(stack));
  }
  stacks_.emplace(key_, row);
  return row;
}

RowId ChromeInputsReader::Code(const ChromeEvent& event) {
  if (!event.has(ArgKey::kCodeFile) && !event.has(ArgKey::kCodeParameters))
    return kNone;
  Stack code;
  std::string scratch;
  bool is_known = false;
  for (ArgKey key : {ArgKey::kCodeFile, ArgKey::kCodeParameters}) {
    const Field field = event.arg(key);
    const bool is_text = field.type == Field::Type::kText;
    code.frames.push_back(
        builder_->Intern(is_text ? Unescape(field.text, &scratch) : ""));
    is_known |= code.frames.back() != 0;
  }
  return is_known ? builder_->InternStack(std::move(code)) : kNone;
}

RowId ChromeInputsReader::ParseStack(const std::string& text) {
  dom::array list;
  if (json_->parser.parse(text).get(list)) return kNone;
  Stack stack;
  for (dom::element item : list)
    stack.frames.push_back(builder_->Intern(TextOf(item)));
  return builder_->InternStack(std::move(stack));
}

}  // namespace stepscope
