// TopShapes: the shapes that `top --by-shape` tells rows apart by, as numbers:
// equal texts have equal numbers, and a text is made once.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace stepscope {

class TopShapes {
 public:
  // Where `wanted` is false every shape is number 0, whose text is empty.
  TopShapes(const Trace& trace, bool wanted) : trace_(trace), wanted_(wanted) {}

  // The types and sizes of an operator's inputs.
  uint64_t Of(const Op& op);
  // The grid and block of a launch.
  uint64_t Of(const Kernel& kernel);
  uint64_t OfBytes(int64_t bytes);
  // Valid until the next Of().
  const std::string& Text(uint64_t number) const { return texts_[number]; }

 private:
  uint64_t Number(const std::string& text);

  const Trace& trace_;
  const bool wanted_;
  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<std::string> texts_ = {""};
  std::vector<uint64_t> of_inputs_;  // by row of op_inputs(): number + 1
  std::map<std::array<int32_t, 6>, uint64_t> of_launch_;
  std::unordered_map<int64_t, uint64_t> of_bytes_;
};

// "copy pageable -> device": a copy's name, whatever the file called it.
std::string CopyName(const Copy& copy);

}  // namespace stepscope
