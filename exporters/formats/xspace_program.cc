#include "xspace_program.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace stepscope {
namespace {

// How sure it is that a kernel does the work of a multiplying op: 2 by its own
// name, 1 if the name does not tell, 0 if it prepares or finishes.
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

struct Member {
  RowId call;  // the op call whose cost is shared
  RowId kernel;
  int part;
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
  Number(ShareCosts());
}

std::vector<XProgram::Share> XProgram::ShareCosts() {
  std::vector<Share> shares(trace_.kernels().size());
  std::vector<Member> members;
  std::map<NameId, int> parts;  // by kernel name
  for (RowId row = 0; row < shares.size(); ++row) {
    const Kernel& kernel = trace_.kernels()[row];
    if (kernel.op == kNone) continue;
    const RowId multiplying = MultiplyingOp(trace_, kernel.op);
    if (multiplying == kNone) {
      members.push_back({kernel.op, row, 1});
      continue;
    }
    const auto [it, added] = parts.try_emplace(kernel.name, 0);
    if (added) it->second = Part(TraitsOfKernel(trace_.name(kernel.name)).kind);
    members.push_back({multiplying, row, it->second});
  }
  std::stable_sort(
      members.begin(), members.end(),
      [](const Member& a, const Member& b) { return a.call < b.call; });
  for (auto begin = members.begin(); begin != members.end();) {
    const auto end = std::find_if(
        begin, members.end(),
        [&](const Member& member) { return member.call != begin->call; });
    const int best =
        std::max_element(begin, end, [](const Member& a, const Member& b) {
          return a.part < b.part;
        })->part;
    const auto workers = static_cast<double>(std::count_if(
        begin, end, [&](const Member& m) { return m.part == best; }));
    const OpCost cost = CostOf(trace_, begin->call);
    for (auto it = begin; it != end; ++it) {
      const bool works = it->part == best;
      Share& share = shares[it->kernel];
      if (cost.flops >= 0) share.flops = works ? cost.flops / workers : 0;
      if (cost.bytes >= 0 && works) share.bytes = cost.bytes / workers;
    }
    begin = end;
  }
  return shares;
}

void XProgram::Number(const std::vector<Share>& shares) {
  using Key = std::tuple<std::pair<NameId, NameId>, NameId, double, double>;
  std::map<Key, RowId> known;
  for (RowId row = 0; row < shares.size(); ++row) {
    const Kernel& kernel = trace_.kernels()[row];
    if (kernel.op == kNone) continue;
    const Key key = {context_.TfOpKey(kernel.op), kernel.name,
                     shares[row].flops, shares[row].bytes};
    const auto [it, added] =
        known.try_emplace(key, static_cast<RowId>(instructions_.size()));
    if (added) {
      instructions_.push_back({.name = InstructionName(context_.TfOp(kernel.op),
                                                       instructions_.size()),
                               .op = kernel.op,
                               .flops = shares[row].flops,
                               .bytes = shares[row].bytes});
    }
    of_kernel_[row] = it->second;
  }
}

}  // namespace stepscope
