#include "evidence/wait_sites.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "context/noise.h"
#include "evidence/call_site.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kExamples = 3;
constexpr size_t kSitesShown = 2;
constexpr double kMostly = 0.5;

std::string InWords(const WaitSite& site) {
  std::string text = site.chain.empty() ? "code outside ops" : site.chain;
  if (!site.source.empty()) text += " at " + site.source;
  return text + " (" + Milliseconds(site.blocked_ns * 1e-6) + " blocked)";
}

// Returns the share of the waiting during which the device runs only
// collectives, so that it may be waiting for other ranks.
double CollectiveFrac(const AnalysisContext& m, const WaitFilter& filter) {
  if (m.trace.communications().empty() && m.collectives.empty()) return 0;
  const std::vector<Span> collectives =
      Subtract(m.ledger->kernels, m.ledger->compute);
  double waited = 0, behind = 0;
  for (const HostWait& wait : m.waits.all) {
    if (!wait.steady || !filter(wait)) continue;
    waited += static_cast<double>(wait.blocked_ns);
    behind += static_cast<double>(LengthIn(collectives, wait.span));
  }
  return waited > 0 ? behind / waited : 0;
}

}  // namespace

std::vector<WaitSite> SitesOf(const AnalysisContext& m,
                              const WaitFilter& filter) {
  const CallSites places(m.trace);
  // Calls with the same chain from two source lines are two places.
  std::map<std::pair<std::string, std::string>, WaitSite> by_place;
  const std::vector<HostWait>& waits = m.waits.all;
  for (size_t i = 0; i < waits.size(); ++i) {
    const HostWait& wait = waits[i];
    if (!wait.steady || !filter(wait)) continue;
    std::string chain = places.Chain(wait.thread, wait.span.begin_ns, wait.op);
    // A synchronisation outside any op is named after its runtime call.
    if (chain.empty() && wait.sync_call != kNone) {
      const RuntimeCall& call = m.trace.runtime_calls()[wait.sync_call];
      chain = m.trace.name(call.name);
    }
    std::string source =
        places.Source(wait.thread, wait.span.begin_ns, wait.op);
    WaitSite& site = by_place[{std::move(chain), std::move(source)}];
    site.blocked_ns += static_cast<double>(wait.blocked_ns);
    site.waits.push_back(i);
  }
  std::vector<WaitSite> sites;
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (auto& [place, site] : by_place) {
    std::tie(site.chain, site.source) = place;
    site.blocked_ns /= steps;
    site.per_step = static_cast<double>(site.waits.size()) / steps;
    std::ranges::stable_sort(site.waits, std::greater(),
                             [&](size_t i) { return waits[i].blocked_ns; });
    sites.push_back(std::move(site));
  }
  std::ranges::stable_sort(sites, std::greater(), &WaitSite::blocked_ns);
  return sites;
}

void DescribeWaits(const AnalysisContext& m, const WaitFilter& filter,
                   Found& found) {
  Finding& finding = found.finding;
  const std::vector<WaitSite> sites = SitesOf(m, filter);
  for (size_t i = 0; i < std::min(kSitesShown, sites.size()); ++i) {
    finding.where += (i > 0 ? "; " : "") + InWords(sites[i]);
  }
  std::vector<std::pair<int64_t, std::pair<size_t, size_t>>> longest;
  for (size_t s = 0; s < sites.size(); ++s) {
    // The waits of a site are sorted, so later ones cannot be among the longest
    // of all.
    for (size_t i = 0; i < std::min(kExamples, sites[s].waits.size()); ++i) {
      const size_t wait = sites[s].waits[i];
      longest.push_back({-m.waits.all[wait].blocked_ns, {s, wait}});
    }
  }
  std::ranges::sort(longest);
  for (size_t i = 0; i < std::min(kExamples, longest.size()); ++i) {
    const auto& [site, row] = longest[i].second;
    const HostWait& wait = m.waits.all[row];
    finding.examples.push_back({m.steps.windows[wait.step].number,
                                wait.span.begin_ns, wait.span.end_ns,
                                sites[site].chain});
  }
  // The replay accounts for the time that the collectives would still take, but
  // a bound does not.
  const double frac = CollectiveFrac(m, filter);
  if (frac < kMostly) return;
  finding.collectives_frac = frac;
  found.if_bound.confidence = Confidence::kHint;
  found.if_bound.evidence += " For " + Percent(frac) +
                             " of that time the GPU runs only collectives" +
                             std::string(kMayBeRanks) + ".";
}

void ExplainSmallGain(const AnalysisContext& m, const WaitSums& sums,
                      Found& found) {
  const std::string why =
      sums.bubble_ns >= kMostly * sums.blocked_ns
          ? " The idle time is too small a part of the step to matter."
          : " The GPU is busy during the waits, so there is little or nothing "
            "to gain.";
  found.if_small.evidence += why;
  // The engine reports a bound only if half of it is large enough.
  if (found.bound_ns * 1e-6 / 2 < MinReportableGainMs(m)) {
    found.if_bound.evidence += why;
  }
}

}  // namespace stepscope
