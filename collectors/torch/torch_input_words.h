// The words of a kInputsSlot record: the arguments of one operator call as
// 64-bit words, which a hook writes and the decoder turns into text.
//
//   argument     first word                          then
//   kTensor      tag | dtype | dims (8 bit) | flags  dims, strides (flag 1)
//   kNoTensor    tag                                 -  undefined or symbolic
//   kInt         tag                                 value
//   kBool        tag                                 0 or 1
//   kDouble      tag                                 bits
//   kComplex     tag                                 bits, bits
//   kNone        tag
//   kOther       tag                                 -  text, devices, objects
//   kTensorList  tag | count (32 bit)                `count` tensors
//   kScalarList  tag | element tag | count (32 bit)  `count` values, one word
//                                                    each
// Fields of a first word are 8 bits wide from the lowest up; a count is in its
// upper half.
#pragma once

#include <stepscope/trace_builder.h>

#include <cstdint>
#include <span>
#include <string>

namespace stepscope {

enum class InputTag : uint8_t {
  kTensor = 1,
  kNoTensor,
  kInt,
  kBool,
  kDouble,
  kComplex,
  kNone,
  kOther,
  kTensorList,
  kScalarList,
};

inline constexpr uint8_t kHasStrides = 1;
// The maximum number of a list's elements that are kept.
inline constexpr size_t kMaxListElements = 64;

constexpr uint64_t PackTensor(uint8_t dtype, uint8_t dims, uint8_t flags) {
  return static_cast<uint64_t>(InputTag::kTensor) | uint64_t{dtype} << 8 |
         uint64_t{dims} << 16 | uint64_t{flags} << 24;
}
constexpr uint64_t PackList(InputTag tag, InputTag element, uint32_t count) {
  return static_cast<uint64_t>(tag) | static_cast<uint64_t>(element) << 8 |
         uint64_t{count} << 32;
}

// Decodes the arguments into `inputs`. Returns false if the words are invalid,
// and keeps the arguments before that place. Types and values have Kineto's
// form.
bool DecodeInputs(std::span<const uint64_t> words, TraceBuilder& builder,
                  OpInputs& inputs);

// Returns Kineto's name of a torch scalar type ("float", "c10::BFloat16"), or
// "" if the number is unknown.
std::string_view DtypeName(uint64_t dtype);

}  // namespace stepscope
