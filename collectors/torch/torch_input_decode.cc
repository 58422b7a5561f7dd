#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "torch_input_words.h"

namespace stepscope {
namespace {

// In torch's order. Source: c10/core/ScalarType.h, and the names from its
// TypeMeta, which Kineto writes.
constexpr std::array<std::string_view, 47> kDtypeNames = {
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::qint8",
    "c10::quint8",
    "c10::qint32",
    "c10::BFloat16",
    "c10::quint4x2",
    "c10::quint2x4",
    "c10::bits1x8",
    "c10::bits2x4",
    "c10::bits4x2",
    "c10::bits8",
    "c10::bits16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "short unsigned int",
    "unsigned int",
    "long unsigned int",
    "c10::dummy_uint1_7_t<1>",
    "c10::dummy_uint1_7_t<2>",
    "c10::dummy_uint1_7_t<3>",
    "c10::dummy_uint1_7_t<4>",
    "c10::dummy_uint1_7_t<5>",
    "c10::dummy_uint1_7_t<6>",
    "c10::dummy_uint1_7_t<7>",
    "c10::dummy_int1_7_t<1>",
    "c10::dummy_int1_7_t<2>",
    "c10::dummy_int1_7_t<3>",
    "c10::dummy_int1_7_t<4>",
    "c10::dummy_int1_7_t<5>",
    "c10::dummy_int1_7_t<6>",
    "c10::dummy_int1_7_t<7>",
    "c10::Float8_e8m0fnu",
    "c10::Float4_e2m1fn_x2",
    "c10::complex<c10::BFloat16>",  // from 2.15 on
};

// Formats like IValue: a whole number that fits 64 bits reads "2.", and the
// sign of zero is lost.
std::string DoubleText(double value) {
  if (std::abs(value) < 0x1p63 && value == std::trunc(value)) {
    return std::to_string(static_cast<int64_t>(value)) + ".";
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

std::string ValueText(InputTag tag, uint64_t word) {
  switch (tag) {
    case InputTag::kBool:
      return word != 0 ? "True" : "False";
    case InputTag::kDouble:
      return DoubleText(std::bit_cast<double>(word));
    default:
      return std::to_string(static_cast<int64_t>(word));
  }
}

// Reads words in order. Each read returns false if there is no further word.
class WordReader {
 public:
  explicit WordReader(std::span<const uint64_t> words) : words_(words) {}
  bool empty() const { return words_.empty(); }
  bool Take(uint64_t& word) {
    if (words_.empty()) return false;
    word = words_.front();
    words_ = words_.subspan(1);
    return true;
  }
  bool Take(size_t count, std::vector<int64_t>& values) {
    if (words_.size() < count) return false;
    values.assign(words_.begin(), words_.begin() + count);
    words_ = words_.subspan(count);
    return true;
  }

 private:
  std::span<const uint64_t> words_;
};

bool DecodeTensor(uint64_t first, WordReader& reader, TraceBuilder& builder,
                  Argument& argument) {
  argument.type = builder.Intern(DtypeName(first >> 8 & 0xff));
  const size_t dims = first >> 16 & 0xff;
  if (!reader.Take(dims, argument.dims)) return false;
  const bool has_strides = (first >> 24 & kHasStrides) != 0;
  return !has_strides || reader.Take(dims, argument.strides);
}

// An element that is not a tensor keeps its place as an empty argument.
bool DecodeTensorList(uint64_t first, WordReader& reader, TraceBuilder& builder,
                      Argument& argument) {
  argument.type = builder.Intern("TensorList");
  for (uint64_t i = 0; i < first >> 32; ++i) {
    uint64_t word = 0;
    if (!reader.Take(word)) return false;
    Argument& element = argument.elements.emplace_back();
    switch (static_cast<InputTag>(word & 0xff)) {
      case InputTag::kTensor:
        if (!DecodeTensor(word, reader, builder, element)) return false;
        break;
      case InputTag::kNoTensor:
        break;
      default:
        return false;
    }
  }
  return true;
}

// Writes one text for the whole list, like Kineto.
bool DecodeScalarList(uint64_t first, WordReader& reader, TraceBuilder& builder,
                      Argument& argument) {
  argument.type = builder.Intern("ScalarList");
  const auto element = static_cast<InputTag>(first >> 8 & 0xff);
  std::string text = "[";
  for (uint64_t i = 0; i < first >> 32; ++i) {
    uint64_t word = 0;
    if (!reader.Take(word)) return false;
    if (i > 0) text += ", ";
    text += ValueText(element, word);
  }
  argument.concrete = builder.Intern(text + "]");
  return true;
}

bool DecodeArgument(uint64_t first, WordReader& reader, TraceBuilder& builder,
                    Argument& argument) {
  const auto tag = static_cast<InputTag>(first & 0xff);
  uint64_t word = 0;
  switch (tag) {
    case InputTag::kTensor:
      return DecodeTensor(first, reader, builder, argument);
    case InputTag::kTensorList:
      return DecodeTensorList(first, reader, builder, argument);
    case InputTag::kScalarList:
      return DecodeScalarList(first, reader, builder, argument);
    case InputTag::kInt:
    case InputTag::kBool:
    case InputTag::kDouble:
      if (!reader.Take(word)) return false;
      argument.type = builder.Intern("Scalar");
      argument.concrete = builder.Intern(ValueText(tag, word));
      return true;
    case InputTag::kComplex: {
      uint64_t imaginary = 0;
      if (!reader.Take(word) || !reader.Take(imaginary)) return false;
      argument.type = builder.Intern("Scalar");
      argument.concrete =
          builder.Intern(DoubleText(std::bit_cast<double>(word)) + "+" +
                         DoubleText(std::bit_cast<double>(imaginary)) + "j");
      return true;
    }
    // Only the position of these arguments is known.
    case InputTag::kNoTensor:
    case InputTag::kNone:
    case InputTag::kOther:
      return true;
  }
  // Reached only with damaged words, because every tag that a hook writes is
  // handled above.
  return false;
}

}  // namespace

std::string_view DtypeName(uint64_t dtype) {
  return dtype < kDtypeNames.size() ? kDtypeNames[dtype] : std::string_view();
}

bool DecodeInputs(std::span<const uint64_t> words, TraceBuilder& builder,
                  OpInputs& inputs) {
  WordReader reader(words);
  uint64_t first = 0;
  while (reader.Take(first)) {
    if (!DecodeArgument(first, reader, builder,
                        inputs.arguments.emplace_back())) {
      return false;
    }
  }
  return true;
}

}  // namespace stepscope
