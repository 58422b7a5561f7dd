#include "xspace/writer/xspace_program.h"

#include <stepscope/kernel_class.h>
#include <stepscope/op_cost.h>

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

namespace stepscope {
namespace {

// Returns how likely a kernel does the multiplications of an op: 2 if its name
// says so, 1 if the name does not tell, 0 if it only prepares or finishes.
int Part(KernelClass kind) {
  switch (kind) {
    case KernelClass::kMatmul:
    case KernelClass::kConvolution:
    case KernelClass::kAttention:
      return 2;
    case KernelClass::kUnknown:
      return 1;
    default:
      return 0;
  }
}

// Launches with equal keys share an instruction.
struct Key {
  uint64_t tf_op;
  NameId kernel;
  double flops;
  double bytes;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.tf_op;
    for (uint64_t value :
         {uint64_t{key.kernel}, std::bit_cast<uint64_t>(key.flops),
          std::bit_cast<uint64_t>(key.bytes)}) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// "gradients/Conv2DBackpropInput" -> "Conv2DBackpropInput.17"
std::string InstructionName(std::string path, size_t number) {
  const size_t colon = path.find(':');
  if (colon != std::string::npos) path.resize(colon);
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) path.erase(0, slash + 1);
  return path + "." + std::to_string(number);
}

}  // namespace

XProgram::XProgram(const XContext& context)
    : context_(context),
      trace_(context.trace()),
      of_kernel_(trace_.kernels().size(), kNone) {
  ShareCosts(FindCalls());
  Number();
}

// A kernel belongs to the multiplying op around it if there is one, because the
// inner ops of that op (transposes, copies) are part of the same work.
std::vector<RowId> XProgram::FindCalls() const {
  std::vector<RowId> calls(trace_.kernels().size(), kNone);
  RowId last_op = kNone, last_call = kNone;
  for (RowId row = 0; row < calls.size(); ++row) {
    const RowId op = trace_.kernels()[row].op;
    if (op == kNone) continue;
    if (op != last_op) {
      const RowId multiplying = MultiplyingOp(trace_, op);
      last_op = op;
      last_call = multiplying == kNone ? op : multiplying;
    }
    calls[row] = last_call;
  }
  return calls;
}

// Shares the cost of a call evenly among those of its kernels that most likely
// do the work. The others (transposes, reductions) get no FLOPs.
void XProgram::ShareCosts(const std::vector<RowId>& calls) {
  // Kernels sorted by call. They mostly have this order already.
  std::vector<RowId> members;
  members.reserve(calls.size());
  for (RowId row = 0; row < calls.size(); ++row)
    if (calls[row] != kNone) members.push_back(row);
  const auto before = [&](RowId a, RowId b) {
    return calls[a] != calls[b] ? calls[a] < calls[b] : a < b;
  };
  if (!std::is_sorted(members.begin(), members.end(), before))
    std::sort(members.begin(), members.end(), before);

  std::unordered_map<NameId, int> parts;  // by kernel name
  const auto part_of = [&](RowId row, bool multiplies) {
    if (!multiplies) return 1;
    const NameId name = trace_.kernels()[row].name;
    const auto [it, added] = parts.try_emplace(name, 0);
    if (added) it->second = Part(TraitsOfKernel(trace_.name(name)).kind);
    return it->second;
  };
  std::unordered_map<Key, RowId, KeyHash> known;
  for (auto begin = members.begin(); begin != members.end();) {
    const RowId call = calls[*begin];
    const bool multiplies = MultiplyingOp(trace_, call) == call;
    int best = 0;
    double workers = 0;
    auto end = begin;
    for (; end != members.end() && calls[*end] == call; ++end) {
      const int part = part_of(*end, multiplies);
      workers = part > best ? 1 : workers + (part == best);
      best = std::max(best, part);
    }
    const OpCost cost = CostOf(trace_, call);
    for (; begin != end; ++begin) {
      const Kernel& kernel = trace_.kernels()[*begin];
      const bool works = part_of(*begin, multiplies) == best;
      Key key = {context_.TfOpKey(kernel.op), kernel.name, -1, -1};
      if (cost.flops >= 0) key.flops = works ? cost.flops / workers : 0;
      if (cost.bytes >= 0 && works) key.bytes = cost.bytes / workers;
      const auto [it, added] =
          known.try_emplace(key, static_cast<RowId>(instructions_.size()));
      if (added)
        instructions_.push_back({.flops = key.flops, .bytes = key.bytes});
      of_kernel_[*begin] = it->second;
    }
  }
}

// Sorts the instructions by their first kernel, so that the program reads like
// the step.
void XProgram::Number() {
  std::vector<RowId> number_of(instructions_.size(), kNone);
  std::vector<Instruction> in_order;
  in_order.reserve(instructions_.size());
  for (RowId row = 0; row < of_kernel_.size(); ++row) {
    if (of_kernel_[row] == kNone) continue;
    RowId& number = number_of[of_kernel_[row]];
    if (number == kNone) {
      number = static_cast<RowId>(in_order.size());
      Instruction& instruction =
          in_order.emplace_back(std::move(instructions_[of_kernel_[row]]));
      instruction.op = trace_.kernels()[row].op;
      instruction.name = InstructionName(context_.TfOp(instruction.op), number);
    }
    of_kernel_[row] = number;
  }
  instructions_ = std::move(in_order);
}

}  // namespace stepscope
