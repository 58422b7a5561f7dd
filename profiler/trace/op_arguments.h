// Access to the arguments of one recorded call, for the cost of operators.
#pragma once

#include <stepscope/op_cost.h>

#include <charconv>
#include <span>
#include <string_view>
#include <vector>

namespace stepscope {

inline double Elements(const std::vector<int64_t>& dims) {
  double count = 1;
  for (int64_t dim : dims) count *= static_cast<double>(dim);
  return count;
}

// Stands for the position of an argument that an op does not have.
inline constexpr size_t kNoArgument = 99;

// The arguments of one call, by position. Beyond the last argument all values
// are empty. Valid as long as the Trace lives.
class Arguments {
 public:
  Arguments(const Trace& trace, RowId inputs)
      : trace_(trace), list_(trace.op_inputs()[inputs].arguments) {}

  size_t size() const { return list_.size(); }
  const std::vector<int64_t>& Dims(size_t i) const {
    // Never destroyed, because other static objects may use it at program exit.
    static const auto& kNoDims = *new std::vector<int64_t>;
    return i < list_.size() ? list_[i].dims : kNoDims;
  }
  // The tensors of an argument that is a list.
  std::span<const Argument> Listed(size_t i) const {
    return i < list_.size() ? std::span(list_[i].elements)
                            : std::span<const Argument>();
  }
  // True if the last but one dimension is the contiguous one.
  bool IsTransposed(size_t i) const {
    if (i >= list_.size() || list_[i].strides.size() < 2) return false;
    const std::vector<int64_t>& strides = list_[i].strides;
    return strides.back() != 1 && strides[strides.size() - 2] == 1;
  }
  std::string_view Type(size_t i) const {
    return i < list_.size() ? trace_.name(list_[i].type) : std::string_view();
  }
  std::string_view Text(size_t i) const {
    return i < list_.size() ? trace_.name(list_[i].concrete)
                            : std::string_view();
  }
  // Parses a recorded list such as "[2, 2]"; empty if it was not recorded.
  std::vector<int64_t> List(size_t i) const {
    std::vector<int64_t> numbers;
    std::string_view text = Text(i);
    while (!text.empty()) {
      int64_t number = 0;
      const auto [end, error] =
          std::from_chars(text.data(), text.data() + text.size(), number);
      if (error == std::errc()) {
        numbers.push_back(number);
        text.remove_prefix(static_cast<size_t>(end - text.data()));
      } else {
        text.remove_prefix(1);
      }
    }
    return numbers;
  }
  int64_t Number(size_t i, int64_t otherwise) const {
    const std::vector<int64_t> list = List(i);
    return list.size() == 1 ? list[0] : otherwise;
  }
  double Bytes(size_t i) const {
    return Dims(i).empty()
               ? 0
               : Elements(Dims(i)) * static_cast<double>(ElementBytes(Type(i)));
  }

 private:
  const Trace& trace_;
  const std::vector<Argument>& list_;
};

}  // namespace stepscope
