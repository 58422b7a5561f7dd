#include "chrome/writer/chrome_inputs_writer.h"

#include <algorithm>

#include "json/json_writer.h"

namespace stepscope {
namespace {

void WriteInts(const std::vector<int64_t>& values, JsonWriter& json) {
  json.OpenList();
  for (int64_t value : values) {
    json.Item();
    json.Int(value);
  }
  json.CloseList();
}

// Writes Kineto's form: a list per argument, or a list of lists for a list of
// tensors.
void WriteLists(const std::vector<Argument>& arguments,
                std::vector<int64_t> Argument::*member, JsonWriter& json) {
  json.OpenList();
  for (const Argument& argument : arguments) {
    json.Item();
    if (argument.elements.empty()) {
      WriteInts(argument.*member, json);
    } else {
      WriteLists(argument.elements, member, json);
    }
  }
  json.CloseList();
}

// True if Kineto's lists (dims, strides, types, values) describe each argument
// completely. They have no place for the type and value of a list's elements,
// nor for lists within lists.
bool FitsKineto(const std::vector<Argument>& arguments) {
  return std::all_of(
      arguments.begin(), arguments.end(), [](const Argument& argument) {
        const bool plain_elements =
            std::all_of(argument.elements.begin(), argument.elements.end(),
                        [](const Argument& element) {
                          return element.type == 0 && element.concrete == 0 &&
                                 element.elements.empty();
                        });
        return plain_elements &&
               (argument.elements.empty() ||
                (argument.dims.empty() && argument.strides.empty()));
      });
}

bool HasStrides(const std::vector<Argument>& arguments) {
  return std::any_of(
      arguments.begin(), arguments.end(), [](const Argument& argument) {
        return !argument.strides.empty() || HasStrides(argument.elements);
      });
}

// Writes each whole argument as an object of our own, for our reader.
void WriteWhole(const Trace& trace, const std::vector<Argument>& arguments,
                JsonWriter& json) {
  json.OpenList();
  for (const Argument& argument : arguments) {
    json.Item();
    json.OpenObject();
    if (argument.type != 0) json.Field("type", trace.name(argument.type));
    if (!argument.dims.empty()) {
      json.Key("dims");
      WriteInts(argument.dims, json);
    }
    if (!argument.strides.empty()) {
      json.Key("strides");
      WriteInts(argument.strides, json);
    }
    if (argument.concrete != 0)
      json.Field("concrete", trace.name(argument.concrete));
    if (!argument.elements.empty()) {
      json.Key("elements");
      WriteWhole(trace, argument.elements, json);
    }
    json.CloseObject();
  }
  json.CloseList();
}

}  // namespace

ChromeInputsWriter::ChromeInputsWriter(const Trace& trace)
    : trace_(trace),
      inputs_(trace.op_inputs().size()),
      stacks_(trace.stacks().size()) {}

// A training loop repeats a few hundred distinct argument lists millions of
// times, so the text is kept per row of op_inputs().
void ChromeInputsWriter::AppendInputs(RowId inputs, std::string& out) {
  std::string& text = inputs_[inputs];
  if (text.empty()) text = InputsText(trace_.op_inputs()[inputs]);
  out += text;
}

void ChromeInputsWriter::AppendStack(RowId stack, std::string& out) {
  std::string& text = stacks_[stack];
  if (text.empty()) text = StackText(trace_.stacks()[stack]);
  out += text;
}

std::string ChromeInputsWriter::InputsText(const OpInputs& inputs) const {
  const std::vector<Argument>& arguments = inputs.arguments;
  std::string text = ", \"Input Dims\": ";
  JsonWriter json(&text);
  WriteLists(arguments, &Argument::dims, json);
  json.Key("Input type");
  json.OpenList();
  for (const Argument& argument : arguments) {
    json.Item();
    json.String(trace_.name(argument.type));
  }
  json.CloseList();
  if (HasStrides(arguments)) {
    json.Key("Input Strides");
    WriteLists(arguments, &Argument::strides, json);
  }
  if (std::any_of(
          arguments.begin(), arguments.end(),
          [](const Argument& argument) { return argument.concrete != 0; })) {
    json.Key("Concrete Inputs");
    json.OpenList();
    for (const Argument& argument : arguments) {
      json.Item();
      json.String(trace_.name(argument.concrete));
    }
    json.CloseList();
  }
  if (!FitsKineto(arguments)) {
    json.Key("stepscope.inputs");
    WriteWhole(trace_, arguments, json);
  }
  return text;
}

// Kineto joins frames with ';', which a C++ or Python name may contain.
std::string ChromeInputsWriter::StackText(const Stack& stack) const {
  std::string joined;
  bool ambiguous = stack.frames.empty();
  for (size_t i = 0; i < stack.frames.size(); ++i) {
    const std::string_view frame = trace_.name(stack.frames[i]);
    if (i > 0) joined += ';';
    joined += frame;
    ambiguous |= frame.empty() || frame.find(';') != std::string_view::npos;
  }
  std::string text = ", \"Call stack\": ";
  JsonWriter json(&text);
  json.String(joined);
  if (ambiguous) {
    text += ", \"stepscope.stack\": ";
    json.OpenList();
    for (NameId frame : stack.frames) {
      json.Item();
      json.String(trace_.name(frame));
    }
    json.CloseList();
  }
  return text;
}

}  // namespace stepscope
