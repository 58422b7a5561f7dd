#include "tables/top_shapes.h"

#include "words/labels.h"

namespace stepscope {
namespace {

template <typename Numbers>
std::string Joined(const Numbers& numbers) {
  std::string text;
  for (auto number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::string ArgumentsText(const Trace& trace,
                          const std::vector<Argument>& arguments) {
  std::string text;
  for (const Argument& argument : arguments) {
    if (!text.empty()) text += ' ';
    // An argument that is neither a tensor nor a scalar is printed as "-", so
    // that the others keep their positions.
    if (argument == Argument()) text += '-';
    text += trace.name(argument.type);
    if (!argument.dims.empty()) text += "[" + Joined(argument.dims) + "]";
    if (!argument.elements.empty())
      text += "(" + ArgumentsText(trace, argument.elements) + ")";
  }
  return text;
}

}  // namespace

uint64_t TopShapes::Number(const std::string& text) {
  if (text.empty()) return 0;
  const auto [it, added] = numbers_.try_emplace(text, texts_.size());
  if (added) texts_.push_back(text);
  return it->second;
}

uint64_t TopShapes::Of(const Op& op) {
  if (!wanted_ || op.inputs == kNone) return 0;
  // Makes a text once per distinct list of shapes, not once per call. Stores
  // number + 1, so that 0 means that the text has not been made yet.
  of_inputs_.resize(trace_.op_inputs().size());
  uint64_t& known = of_inputs_[op.inputs];
  if (known == 0) {
    known = 1 + Number(ArgumentsText(trace_,
                                     trace_.op_inputs()[op.inputs].arguments));
  }
  return known - 1;
}

uint64_t TopShapes::Of(const Kernel& kernel) {
  if (!wanted_) return 0;
  const std::array<int32_t, 6> launch = {kernel.grid[0],  kernel.grid[1],
                                         kernel.grid[2],  kernel.block[0],
                                         kernel.block[1], kernel.block[2]};
  const auto [it, added] = of_launch_.try_emplace(launch, 0);
  if (added) {
    it->second = Number("grid " + Joined(kernel.grid) + " block " +
                        Joined(kernel.block));
  }
  return it->second;
}

uint64_t TopShapes::OfBytes(int64_t bytes) {
  if (!wanted_ || bytes < 0) return 0;
  const auto [it, added] = of_bytes_.try_emplace(bytes, 0);
  if (added) it->second = Number(std::to_string(bytes) + " B");
  return it->second;
}

std::string CopyName(const Copy& copy) { return "copy " + CopyInWords(copy); }

}  // namespace stepscope
