#include "evidence/weights_on_host.h"

#include <algorithm>
#include <map>

#include "evidence/gradient_passes.h"

namespace stepscope {
namespace {

// So many copies per step are weights. Our own choices; a batch has a few
// tensors.
constexpr double kPerStep = 16;
constexpr size_t kSizes = 4;
constexpr double kReturned = 0.5;  // of the uploaded bytes

using Sizes = std::map<int64_t, double>;  // bytes of a copy: number of copies

Sizes SizesOf(const AnalysisContext& m,
              const std::vector<const HostCopy*>& copies) {
  Sizes sizes;
  for (const HostCopy* one : copies) {
    ++sizes[m.trace.copies()[one->copy].bytes];
  }
  return sizes;
}

bool Alternate(const AnalysisContext& m,
               const std::vector<const HostCopy*>& uploads) {
  std::vector<int64_t> launches;
  for (const Kernel& kernel : m.trace.kernels()) {
    if (kernel.call == kNone) continue;
    launches.push_back(m.trace.runtime_calls()[kernel.call].begin_ns);
  }
  std::ranges::sort(launches);
  double alternate = 0;
  for (size_t i = 1; i < uploads.size(); ++i) {
    const RowId before = m.trace.copies()[uploads[i - 1]->copy].call;
    const RowId call = m.trace.copies()[uploads[i]->copy].call;
    if (before == kNone || call == kNone) continue;
    const auto launch = std::ranges::lower_bound(
        launches, m.trace.runtime_calls()[before].begin_ns);
    alternate += launch != launches.end() &&
                 *launch < m.trace.runtime_calls()[call].begin_ns;
  }
  return alternate >= kPerStep * static_cast<double>(m.steps.steady.size());
}

bool Return(const AnalysisContext& m, const Sizes& up, const Sizes& down) {
  double uploaded = 0, returned = 0, copies = 0;
  for (const auto& [bytes, count] : up) {
    const auto same = down.find(bytes);
    const double back = same == down.end() ? 0 : std::min(count, same->second);
    uploaded += count * static_cast<double>(bytes);
    returned += back * static_cast<double>(bytes);
    copies += back;
  }
  return returned >= kReturned * uploaded &&
         copies >= kPerStep * static_cast<double>(m.steps.steady.size());
}

}  // namespace

WeightsOnHost FindWeightsOnHost(const AnalysisContext& m,
                                const std::vector<const HostCopy*>& uploads,
                                const std::vector<const HostCopy*>& downloads) {
  const Sizes up = SizesOf(m, uploads);
  if (up.size() < kSizes) return WeightsOnHost::kNone;
  const bool alternate = Alternate(m, uploads);
  if (OnlyInfers(m) && Return(m, up, SizesOf(m, downloads))) {
    // One by one, they are pictures that a model turns into others.
    return alternate ? WeightsOnHost::kNone : WeightsOnHost::kAndBack;
  }
  return alternate ? WeightsOnHost::kByLayer : WeightsOnHost::kNone;
}

}  // namespace stepscope
