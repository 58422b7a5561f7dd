#include "evidence/gradients/late_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "evidence/launches.h"

namespace stepscope {
namespace {

// If fewer bytes follow a backward pass, they may be its loss or a norm, which
// cannot start earlier.
constexpr int64_t kLeastBytes = 1 << 20;

bool IsLate(const AnalysisContext& m, const GradientPass& pass) {
  if (pass.backward.length() <= 0 ||
      (pass.sizes_known && pass.bytes < kLeastBytes)) {
    return false;
  }
  return std::ranges::all_of(pass.collectives, [&](size_t i) {
    const Collective& one = m.collectives[i];
    return one.kernel != kNone && one.issued.length() > 0 &&
           one.issued.begin_ns >= pass.backward.end_ns;
  });
}

using Launch = std::pair<int64_t, RowId>;

// Returns the kernels that compute, in the order of their launches.
std::vector<Launch> ComputeLaunches(const AnalysisContext& m) {
  std::vector<Launch> launches;
  for (const KernelUse& use : m.kernels.uses) {
    if (use.kind == KernelClass::kCommunication) continue;
    launches.push_back({LaunchedNs(m.trace, use.kernel), use.kernel});
  }
  std::ranges::sort(launches);
  return launches;
}

// Returns when the host has launched what makes this share, 0 to 1, of the
// pass's gradients.
int64_t MadeNs(const AnalysisContext& m, const GradientPass& pass,
               double share) {
  if (pass.parameters.empty()) {
    return pass.backward.begin_ns +
           static_cast<int64_t>(share *
                                static_cast<double>(pass.backward.length()));
  }
  const auto made = static_cast<size_t>(
      std::lround(share * static_cast<double>(pass.parameters.size())));
  const size_t last = std::clamp<size_t>(made, 1, pass.parameters.size()) - 1;
  return m.trace.ops()[pass.parameters[last]].end_ns;
}

void AddEarly(const AnalysisContext& m, const GradientPass& pass,
              const std::vector<Launch>& launches, LateGradients& late) {
  const size_t count = pass.collectives.size();
  // Other programs have made their own buckets.
  const bool in_buckets =
      pass.sizes_known &&
      static_cast<double>(count) >=
          kPerParameterShare * static_cast<double>(pass.parameters.size());
  double bytes = 0;
  std::vector<size_t> bucket;
  for (size_t i = count; i-- > 0;) {
    bucket.push_back(pass.collectives[i]);
    bytes += static_cast<double>(m.collectives[pass.collectives[i]].bytes);
    if (in_buckets && bytes < kBucketBytes && i > 0) continue;
    const double share =
        static_cast<double>(count - i) / static_cast<double>(count);
    const auto after = std::ranges::upper_bound(
        launches, MadeNs(m, pass, share), {}, &Launch::first);
    if (after != launches.begin() &&
        std::prev(after)->first >= pass.backward.begin_ns) {
      for (size_t one : bucket) {
        late.early.push_back(
            {KernelOf(m.collectives[one]),
             {ActivityTable::kKernel, std::prev(after)->second}});
      }
    }
    bucket.clear();
    bytes = 0;
  }
}

}  // namespace

LateGradients FindLateGradients(const AnalysisContext& m,
                                const std::vector<GradientPass>& passes) {
  LateGradients late;
  std::vector<Launch> launches;
  for (const GradientPass& pass : passes) {
    if (!IsLate(m, pass)) continue;
    if (launches.empty()) launches = ComputeLaunches(m);
    for (size_t i : pass.collectives) {
      late.members.insert(i);
      late.exposed_ns += static_cast<double>(m.collectives[i].exposed_ns) /
                         static_cast<double>(m.steps.steady.size());
    }
    AddEarly(m, pass, launches, late);
  }
  return late;
}

}  // namespace stepscope
