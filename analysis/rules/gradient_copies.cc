// Are gradients copied out of the buckets they were reduced in?
// In no guide; measured: 19.0 of 227.8 ms per step on a run whose host is the
// limit, 1.1 of 98.3 ms on one whose GPU is.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "engine/sizing.h"
#include "evidence/host_spans.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

Verdict CheckExtraCopies(const AnalysisContext& m) {
  const std::vector<HostSpan> spans = SpansNamed(m, "copy_bucket_to_grad");
  if (spans.empty()) return Clean();
  const std::vector<ActivityRef> work = LaunchedIn(m, spans);
  const double host = HostNsPerStep(m, spans);
  const double device = DeviceNsPerStep(m, work);
  if ((host + device) * 1e-6 < MinReportableGainMs(m)) return Clean();
  const CollectiveTotals buffers =
      TotalsOf(m.collectives, m.steps, [](const Collective& one) {
        return one.kind == CollectiveKind::kBroadcast && !one.in_backward;
      });
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence = "DDP copies every gradient back from its bucket: " +
                     Count(std::llround(static_cast<double>(spans.size()) /
                                        m.steps.steady.size()),
                           "copy", "copies") +
                     " per step, " + Milliseconds(host * 1e-6) +
                     " of the host and " + Milliseconds(device * 1e-6) +
                     " of the device.";
  if (buffers.count > 0) {
    finding.evidence +=
        " It also broadcasts buffers before each forward pass: " +
        Count(std::llround(buffers.count), "broadcast") + ", " +
        Milliseconds((buffers.issue_ns + buffers.exposed_ns) * 1e-6) + ".";
  }
  for (size_t i = 0; i < std::min<size_t>(3, spans.size()); ++i) {
    finding.examples.push_back({-1, spans[i].span.begin_ns,
                                spans[i].span.end_ns, "copy_bucket_to_grad"});
  }
  finding.where = "torch.distributed.ddp.reducer::copy_bucket_to_grad";
  finding.assumption =
      "gradients are views of the buckets; the multiplication that averages "
      "them stays";
  finding.fix_cpp =
      "let the gradients be views of the flat buckets instead of copies";
  finding.fix_python =
      "DistributedDataParallel(model, gradient_as_bucket_view=True); "
      "broadcast_buffers=False where BatchNorm's statistics may differ by rank";
  finding.wrong_if = "something detaches or replaces .grad between the steps";
  const Edit edit = Without(spans, work);
  finding = Sized(m, std::move(finding), edit, host + device);
  return Fire(std::move(finding), {edit});
}

constexpr Rule kRules[] = {
    {.id = "ddp-extra-copies",
     .question = "Does DDP copy gradients out of its buckets?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .check = &CheckExtraCopies,
     .reference = "PyTorch documentation: DistributedDataParallel, "
                  "gradient_as_bucket_view",
     .detect = "copy_bucket_to_grad takes 1 % of the step on host and device",
     .avoid = "gradient_as_bucket_view is on: there are no such copies",
     .fix_cpp = "gradients as views of the buckets",
     .fix_python = "DistributedDataParallel(gradient_as_bucket_view=True)"}};

}  // namespace

extern const std::span<const Rule> kGradientCopies = kRules;

}  // namespace stepscope
