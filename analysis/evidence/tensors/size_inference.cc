#include "evidence/tensors/size_inference.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "evidence/program/op_shapes.h"
#include "evidence/program/plain_name.h"
#include "ops/contains.h"

namespace stepscope {
namespace {

std::optional<double> RealIn(std::string_view text) {
  // Uses strtod, because libc++ 14 has no from_chars for double.
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size()) return {};
  return value;
}

// Returns the numbers in a text like "[2, 3]".
std::optional<Dims> ListIn(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return {};
  text = text.substr(1, text.size() - 2);
  Dims numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    int64_t number = 0;
    if (std::from_chars(one.data(), one.data() + one.size(), number).ec !=
        std::errc()) {
      return {};
    }
    numbers.push_back(number);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

std::optional<Dims> Broadcast(const std::vector<Dims>& all) {
  Dims made;
  for (const Dims& one : all) {
    if (one.size() > made.size()) {
      made.insert(made.begin(), one.size() - made.size(), 1);
    }
    for (size_t i = 0; i < one.size(); ++i) {
      int64_t& size = made[made.size() - one.size() + i];
      if (size != 1 && one[i] != 1 && size != one[i]) return {};
      size = std::max(size, one[i]);
    }
  }
  return made;
}

}  // namespace

bool MakesFromNumbers(std::string_view name) {
  return IsAnyOf(PlainName(name),
                 {"arange", "ones", "zeros", "full", "linspace", "logspace",
                  "eye", "hann_window", "hamming_window", "blackman_window",
                  "bartlett_window", "kaiser_window"});
}

SizeInference::SizeInference(const Trace& trace, RowId row)
    : trace_(trace), name_(PlainName(trace.name(trace.ops()[row].name))) {
  const RowId inputs = trace.ops()[row].inputs;
  if (inputs == kNone) return;
  known_ = true;
  arguments_ = trace.op_inputs()[inputs].arguments;
  for (const Argument& argument : arguments_) AddTensors(argument);
}

std::optional<Dims> SizeInference::MadeFromNumbers() const {
  if (!known_ || !tensors_.empty()) return {};
  if (name_ == "arange") return Range();
  if (IsAnyOf(name_, {"ones", "zeros", "full"})) return List(0);
  if (IsAnyOf(name_, {"linspace", "logspace"})) return Length(2);
  if (name_ == "eye") {
    const std::optional<Dims> rows = Length(0), columns = Length(1);
    if (!rows) return {};
    return Dims{rows->front(), columns ? columns->front() : rows->front()};
  }
  if (name_.ends_with("_window")) return Length(0);
  return {};
}

bool SizeInference::IsPointwise() const {
  // Functions of torch.special, except for those that PyTorch sums up along a
  // dimension.
  if (name_.starts_with("special_")) {
    return !IsAnyOf(
        name_, {"special_softmax", "special_log_softmax", "special_logsumexp"});
  }
  return IsAnyOf(
      name_,
      {"add",         "sub",          "rsub",       "mul",         "div",
       "pow",         "exp",          "log",        "sin",         "cos",
       "tan",         "tanh",         "sqrt",       "rsqrt",       "neg",
       "abs",         "square",       "reciprocal", "sigmoid",     "floor",
       "round",       "clamp",        "clamp_min",  "clamp_max",   "eq",
       "ne",          "lt",           "le",         "gt",          "ge",
       "logical_not", "logical_and",  "logical_or", "bitwise_not", "maximum",
       "minimum",     "remainder",    "fmod",       "where",       "atan2",
       "masked_fill", "floor_divide", "ceil",       "trunc",       "sign",
       "log2",        "log10",        "log1p",      "expm1",       "erf",
       "acos",        "asin",         "atan",       "sinh",        "cosh",
       "sinc",        "i0",           "exp2",       "erfc",        "erfinv",
       "lgamma",      "digamma",      "asinh",      "acosh",       "atanh",
       "frac",        "hypot",        "xlogy",      "logit",       "deg2rad",
       "rad2deg",     "relu",         "addcmul",    "addcdiv",     "lerp",
       "logaddexp"});
}

int64_t SizeInference::results() const {
  if (name_ == "meshgrid") return static_cast<int64_t>(tensors_.size());
  if (name_ != "unbind" || tensors_.empty()) return 1;
  const std::optional<size_t> dim = Dim(1, tensors_.front().size());
  return dim ? tensors_.front()[*dim] : 1;
}

bool SizeInference::HoldsOneNumber() const {
  return known_ && tensors_.empty() && name_ == "empty" && List(0) == Dims();
}

bool SizeInference::Compares() const {
  return IsAnyOf(name_, {"eq", "ne", "lt", "le", "gt", "ge", "logical_not",
                         "logical_and", "logical_or", "bitwise_not"});
}

bool SizeInference::takes_unknown_number() const {
  return std::ranges::any_of(arguments_, [&](const Argument& one) {
    return one.dims.empty() && trace_.name(one.concrete).empty() &&
           IsAnyOf(trace_.name(one.type), {"double", "long int"});
  });
}

std::optional<Dims> SizeInference::Made() const {
  if (!known_ || tensors_.empty()) return {};
  const Dims& first = tensors_.front();
  if (IsPointwise()) return Broadcast(tensors_);
  if (IsAnyOf(name_,
              {"to", "_to_copy", "clone", "contiguous", "detach", "tril",
               "triu", "cumsum", "cumprod", "flip", "roll", "fill", "zero",
               "copy", "lift_fresh", "softmax", "linalg_inv", "inverse"})) {
    return first;
  }
  if (IsAnyOf(name_, {"sum", "mean", "max", "min"}) && IsOfAll()) {
    return Dims();
  }
  if (IsAnyOf(name_, {"mm", "matmul"}) && tensors_.size() == 2 &&
      first.size() == 2 && tensors_[1].size() == 2) {
    return Dims{first[0], tensors_[1][1]};
  }
  if (name_ == "repeat") return Repeated(first);
  if (name_ == "flatten" && arguments_.size() == 3 && Concrete(1) == "0" &&
      Concrete(2) == "-1") {
    return Dims{ElementsIn(first)};
  }
  if (IsAnyOf(name_, {"view", "reshape", "expand"})) return Resized(first);
  if (IsAnyOf(name_, {"outer", "ger"}) && tensors_.size() == 2) {
    return Dims{first[0], tensors_[1][0]};
  }
  if (name_ == "cdist" && tensors_.size() == 2 && first.size() == 2) {
    return Dims{first[0], tensors_[1][0]};
  }
  if (name_ == "meshgrid") return Grid();
  if (IsAnyOf(name_, {"stack", "cat"})) return Joined();
  return Indexed(first);
}

void SizeInference::AddTensors(const Argument& argument) {
  for (const Argument& one : argument.elements) AddTensors(one);
  const std::string_view type = trace_.name(argument.type);
  // Python numbers appear as arguments without sizes, of one of these types.
  const bool number = argument.dims.empty() &&
                      IsAnyOf(type, {"", "double", "long int", "Scalar",
                                     "ScalarList", "TensorList", "bool"});
  if (argument.elements.empty() && !number) {
    tensors_.push_back(argument.dims);
  }
}

std::string_view SizeInference::Concrete(size_t index) const {
  return index < arguments_.size() ? trace_.name(arguments_[index].concrete)
                                   : std::string_view();
}

std::optional<Dims> SizeInference::Length(size_t index) const {
  const std::optional<int64_t> length = Integer(index);
  if (!length || *length < 1) return {};
  return Dims{*length};
}

std::optional<Dims> SizeInference::Range() const {
  constexpr size_t kMore = 4;
  if (arguments_.size() <= kMore) return {};
  std::vector<double> numbers;
  for (size_t i = 0; i + kMore < arguments_.size(); ++i) {
    const std::optional<double> number = RealIn(Concrete(i));
    if (!number) return {};
    numbers.push_back(*number);
  }
  const double start = numbers.size() > 1 ? numbers[0] : 0;
  const double end = numbers.size() > 1 ? numbers[1] : numbers[0];
  const double step = numbers.size() > 2 ? numbers[2] : 1;
  if (step == 0 || (end - start) / step < 1) return {};
  return Dims{static_cast<int64_t>(std::ceil((end - start) / step))};
}

std::optional<Dims> SizeInference::Resized(const Dims& from) const {
  std::optional<Dims> sizes = List(1);
  if (!sizes || sizes->empty()) return {};
  int64_t rest = 1;
  for (size_t i = 0; i < sizes->size(); ++i) {
    int64_t& size = (*sizes)[i];
    const size_t before = sizes->size() - from.size();
    if (name_ == "expand" && size == -1 && i >= before) {
      size = from[i - before];
    }
    if (size > 0) rest *= size;
  }
  for (int64_t& size : *sizes) {
    if (size == -1) size = ElementsIn(from) / std::max<int64_t>(rest, 1);
  }
  return sizes;
}

bool SizeInference::IsOfAll() const {
  return arguments_.size() <= 2 && Concrete(1).find('[') == Concrete(1).npos;
}

std::optional<Dims> SizeInference::Repeated(Dims from) const {
  std::optional<Dims> times = List(1);
  if (!times || times->size() < from.size()) return {};
  from.insert(from.begin(), times->size() - from.size(), 1);
  for (size_t i = 0; i < from.size(); ++i) (*times)[i] *= from[i];
  return times;
}

std::optional<Dims> SizeInference::Grid() const {
  Dims made;
  for (const Dims& one : tensors_) made.push_back(one.empty() ? 1 : one[0]);
  return made;
}

std::optional<size_t> SizeInference::Dim(size_t index, size_t rank) const {
  std::optional<int64_t> dim = Integer(index);
  if (dim && *dim < 0) *dim += static_cast<int64_t>(rank);
  if (!dim || *dim < 0 || *dim >= static_cast<int64_t>(rank)) return {};
  return static_cast<size_t>(*dim);
}

std::optional<Dims> SizeInference::Joined() const {
  Dims made = tensors_.front();
  const bool stacks = name_ == "stack";
  const std::optional<size_t> dim = Dim(1, made.size() + stacks);
  if (!dim) return {};
  if (stacks) {
    made.insert(made.begin() + static_cast<std::ptrdiff_t>(*dim),
                static_cast<int64_t>(tensors_.size()));
    return made;
  }
  for (size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i].size() != made.size()) return {};
    made[*dim] += tensors_[i][*dim];
  }
  return made;
}

std::optional<Dims> SizeInference::Indexed(Dims made) const {
  if (name_ == "t" && made.size() == 2) return Dims{made[1], made[0]};
  const std::optional<size_t> dim =
      // unsqueeze counts in the dimensions of its result.
      Dim(1, made.size() + (name_ == "unsqueeze"));
  if (!dim) return {};
  const auto at = made.begin() + static_cast<std::ptrdiff_t>(*dim);
  if (name_ == "unsqueeze") {
    made.insert(at, 1);
  } else if (IsAnyOf(name_, {"select", "unbind"})) {
    made.erase(at);
  } else if (name_ == "transpose") {
    const std::optional<size_t> other = Dim(2, made.size());
    if (!other) return {};
    std::swap(*at, made[*other]);
  } else if (name_ == "slice") {
    const auto bound = [&](size_t index, int64_t none) {
      int64_t value = Integer(index).value_or(none);
      if (value < 0) value += *at;
      return std::clamp<int64_t>(value, 0, *at);
    };
    const int64_t step = std::max<int64_t>(Integer(4).value_or(1), 1);
    *at = (bound(3, *at) - bound(2, 0) + step - 1) / step;
  } else {
    return {};
  }
  return made;
}

bool SizeInference::fills() const {
  return IsAnyOf(name_, {"ones", "zeros", "full"});
}

bool SizeInference::arranges() const {
  return IsAnyOf(name_, {"tril", "triu", "cumsum", "cumprod"});
}

bool SizeInference::computes() const {
  return IsPointwise() || arranges() ||
         IsAnyOf(name_, {"outer", "ger", "cdist", "mm", "softmax", "linalg_inv",
                         "inverse"});
}

std::optional<int64_t> SizeInference::Integer(size_t index) const {
  return NumberIn(Concrete(index));
}

std::optional<Dims> SizeInference::List(size_t index) const {
  return ListIn(Concrete(index));
}

}  // namespace stepscope
