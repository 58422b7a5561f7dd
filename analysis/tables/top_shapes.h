// TopShapes: numbers for the shapes by which `top --by-shape` separates rows.
// Equal shape texts have equal numbers, and each text is built only once.
#pragma once

#include <stepscope/trace.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace stepscope {

// One thread at a time.
class TopShapes {
 public:
  // `trace` must outlive this. If not `wanted`, every shape has number 0, whose
  // text is empty.
  TopShapes(const Trace& trace, bool wanted) : trace_(trace), wanted_(wanted) {}

  // The number of the types and sizes of an operator's inputs.
  uint64_t Of(const Op& op);
  // The number of a kernel's grid and block.
  uint64_t Of(const Kernel& kernel);
  // The number of a size; 0 for an unknown (negative) size.
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

// "copy pageable -> device": the name of a copy by its kinds of memory, because
// trace formats name copies differently.
std::string CopyName(const Copy& copy);

}  // namespace stepscope
