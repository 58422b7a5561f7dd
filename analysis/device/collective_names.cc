#include "device/collective_names.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace stepscope {
namespace {

// Lower-case letters only, so that "AllReduce", "all_reduce" and "allreduce_"
// are the same. Kernels, ops, ranges and metadata write the same collective in
// different spellings.
std::string Letters(std::string_view name) {
  std::string letters;
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalpha(byte)) letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

}  // namespace

const char* CollectiveName(CollectiveKind kind) {
  static constexpr std::array<const char*, 8> kNames = {
      "all-reduce", "reduce-scatter", "all-gather",     "all-to-all",
      "broadcast",  "reduce",         "point-to-point", "collective"};
  return kNames[static_cast<size_t>(kind)];
}

CollectiveKind CollectiveKindOf(std::string_view name) {
  // Longer words come first: "reduce" is part of "allreduce".
  static constexpr std::pair<std::string_view, CollectiveKind> kWords[] = {
      // DeepEP sends tokens to their experts, and the results back.
      {"deepep", CollectiveKind::kAllToAll},
      {"allreduce", CollectiveKind::kAllReduce},
      {"reducescatter", CollectiveKind::kReduceScatter},
      {"allgather", CollectiveKind::kAllGather},
      {"alltoall", CollectiveKind::kAllToAll},
      {"broadcast", CollectiveKind::kBroadcast},
      {"sendrecv", CollectiveKind::kPointToPoint},
      {"pointtopoint", CollectiveKind::kPointToPoint},
      {"crossdevicereduce", CollectiveKind::kAllReduce},
      {"reduce", CollectiveKind::kReduce},
      {"send", CollectiveKind::kPointToPoint},
      {"recv", CollectiveKind::kPointToPoint}};
  const std::string letters = Letters(name);
  for (const auto& [word, kind] : kWords) {
    if (letters.find(word) != std::string::npos) return kind;
  }
  return CollectiveKind::kOther;
}

// Integers are counts, lengths or indices, never gradients.
bool IsIntegerType(std::string_view type) {
  const std::string letters = Letters(type);
  for (std::string_view word :
       {"int", "long", "short", "bool", "byte", "char"}) {
    if (letters.find(word) != std::string::npos) return true;
  }
  return false;
}

bool IsFloat32Type(std::string_view type) {
  const std::string letters = Letters(type);
  return letters.ends_with("float") && CollectiveElementBytes(type) == 4;
}

bool ReducesFloat32(std::string_view kernel) {
  for (std::string_view word : {"_f32", "_float"}) {
    const size_t at = kernel.find(word);
    if (at == std::string_view::npos) continue;
    const size_t after = at + word.size();
    // Not "_float8" or "_f32x2".
    return after == kernel.size() ||
           std::isalnum(static_cast<unsigned char>(kernel[after])) == 0;
  }
  return false;
}

int64_t CollectiveElementBytes(std::string_view type) {
  // Longer words come first: "float" is part of "float16".
  static constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"float8", 1},  {"float16", 2}, {"half", 2}, {"double", 8},
      {"float64", 8}, {"float", 4},   {"long", 8}, {"int64", 8},
      {"short", 2},   {"int16", 2},   {"char", 1}, {"byte", 1},
      {"int8", 1},    {"bool", 1},    {"int", 4}};
  std::string lower;
  for (char c : type) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const auto& [word, bytes] : kSizes) {
    if (lower.find(word) != std::string::npos) return bytes;
  }
  return 0;
}

bool IsCollectiveOp(std::string_view name) {
  return ClassOfOp(name) == KernelClass::kCommunication;
}

double BusFactor(CollectiveKind kind, int32_t group_size) {
  if (group_size < 2) return 0;
  const double n = group_size;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace stepscope
