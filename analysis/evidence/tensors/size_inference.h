// SizeInference: the sizes of the tensor that an op makes, where the op's name
// and its recorded arguments determine them.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/op_arguments.h"

namespace stepscope {

// True for ops that can make a tensor from numbers alone, without randomness.
bool MakesFromNumbers(std::string_view name);

// Valid while the trace lives.
class SizeInference {
 public:
  SizeInference(const Trace& trace, RowId row);

  // Sizes of the tensor arguments, without Python numbers.
  const std::vector<Dims>& tensors() const { return tensors_; }
  // Returns the sizes of a tensor made from numbers alone, without randomness.
  std::optional<Dims> MadeFromNumbers() const;
  // Returns the sizes of the result, for an op that takes tensors.
  std::optional<Dims> Made() const;
  // Returns how many tensors the op makes.
  int64_t results() const;

  // True if all elements of the result are equal.
  bool fills() const;
  // True if the op makes a tensor with unequal elements from equal ones.
  bool arranges() const;
  bool IsPointwise() const;
  // True if the op compares elements or combines the results.
  bool Compares() const;
  // True for the tensor that torch.tensor() allocates for a single number.
  bool HoldsOneNumber() const;
  // True if the op takes a Python number whose value was not recorded.
  bool takes_unknown_number() const;
  // True if the op computes elements, in place of moving or filling them.
  bool computes() const;

 private:
  void AddTensors(const Argument& argument);

  // Arguments by index: as recorded, and read as a number, a size or a list.
  std::string_view Concrete(size_t index) const;
  std::optional<int64_t> Integer(size_t index) const;
  std::optional<Dims> Length(size_t index) const;
  std::optional<Dims> List(size_t index) const;
  // A dimension of a tensor with `rank` dimensions.
  std::optional<size_t> Dim(size_t index, size_t rank) const;

  // arange(end), (start, end) and (start, end, step), each with four further
  // arguments.
  std::optional<Dims> Range() const;
  std::optional<Dims> Resized(const Dims& from) const;
  // True for a reduction over all dimensions.
  bool IsOfAll() const;
  std::optional<Dims> Repeated(Dims from) const;
  std::optional<Dims> Grid() const;
  std::optional<Dims> Joined() const;
  std::optional<Dims> Indexed(Dims made) const;

  const Trace& trace_;
  std::string_view name_;
  std::span<const Argument> arguments_;
  std::vector<Dims> tensors_;
  bool known_ = false;
};

}  // namespace stepscope
