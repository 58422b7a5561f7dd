#include "support/simulator/program_inputs.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace stepscope::simulator {

namespace {

Argument TensorOf(TraceBuilder& builder, const std::string& word, size_t open) {
  Argument argument;
  const std::string type = word.substr(0, open);
  argument.type = builder.Intern(type == "long" ? "long int" : type);
  size_t digit = open + 1;
  while (digit < word.size() && word[digit] != ']') {
    argument.dims.push_back(std::atoll(word.c_str() + digit));
    while (digit < word.size() && word[digit] != 'x' && word[digit] != ']')
      ++digit;
    if (digit < word.size() && word[digit] == 'x') ++digit;
  }
  int64_t stride = 1;
  argument.strides.assign(argument.dims.size(), 1);
  for (size_t i = argument.dims.size(); i-- > 0;) {
    argument.strides[i] = stride;
    stride *= argument.dims[i];
  }
  const bool last = word.ends_with("@nhwc");
  if (last && argument.dims.size() == 4) {
    const int64_t c = argument.dims[1], w = argument.dims[3];
    argument.strides = {argument.dims[2] * w * c, 1, w * c, c};
  }
  return argument;
}

// Parses "float[4x8]+float[2x8]".
Argument ListOf(TraceBuilder& builder, const std::string& word) {
  Argument list;
  list.type = builder.Intern("TensorList");
  for (size_t at = 0; at < word.size();) {
    const size_t end = std::min(word.find('+', at), word.size());
    const std::string one = word.substr(at, end - at);
    list.elements.push_back(TensorOf(builder, one, one.find('[')));
    at = end + 1;
  }
  return list;
}

}  // namespace

OpInputs InputsOf(TraceBuilder& builder, const std::string& text) {
  OpInputs inputs;
  size_t at = 0;
  while (at <= text.size()) {
    // Inside quotation marks, commas and brackets are a part of the value.
    const bool quoted = text[at] == '\'';
    const size_t from = quoted ? text.find('\'', at + 1) : at;
    const size_t end = std::min(text.find(',', from), text.size());
    std::string word = text.substr(at, end - at);
    at = end + 1;
    Argument argument;
    const size_t open = word.find('[');
    if (!quoted && open != std::string::npos) {
      argument = word.find('+') == std::string::npos
                     ? TensorOf(builder, word, open)
                     : ListOf(builder, word);
    } else if (word != "-") {
      std::erase(word, '\'');
      argument.type = builder.Intern("Scalar");
      argument.concrete = builder.Intern(word);
    }
    inputs.arguments.push_back(std::move(argument));
    if (end == text.size()) break;
  }
  return inputs;
}

}  // namespace stepscope::simulator
