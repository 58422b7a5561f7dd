// Does the step do unnecessary work on gradients?
// Sources: PyTorch Performance Tuning Guide, "Set gradients to None"; the
// ResNet-18 case study, step 5 (no measurable gain there). No guide mentions
// that DDP copies gradients out of its buckets. Measured: 19.0 of 227.8 ms per
// step in a host-bound run, 1.1 of 98.3 ms per step in a GPU-bound run.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/host_spans.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace gradients_rules {
namespace {

// --- zero-grad-kernels

int64_t TimeInSteps(const AnalysisContext& m, const std::vector<RowId>& rows) {
  int64_t ns = 0;
  for (RowId row : rows) {
    const Op& op = m.trace.ops()[row];
    if (InSteadyStep(m.steps, op.begin_ns)) ns += op.end_ns - op.begin_ns;
  }
  return ns;
}

Verdict CheckZeroGrad(const AnalysisContext& m) {
  const ZeroGrad& found = m.parts.zero_grad;
  if (found.zeroing.empty()) return Clean();
  const double steps = static_cast<double>(m.steps.steady.size());
  const double zero = TimeInSteps(m, found.zeroing) / steps;
  const double add = TimeInSteps(m, found.adding) / steps;
  if (zero <= 0) return Clean();

  Finding finding;
  finding.confidence = Confidence::kProven;
  for (size_t i = 0; i < std::min<size_t>(3, found.zeroing.size()); ++i) {
    const Op& op = m.trace.ops()[found.zeroing[i]];
    finding.examples.push_back(
        {-1, op.begin_ns, op.end_ns, std::string(m.trace.name(op.name))});
  }
  const auto per_step = [&](size_t count) {
    return static_cast<int64_t>(count / m.steps.windows.size());
  };
  const auto cost = [&](size_t calls, double ns) {
    return " (" + Count(std::max<int64_t>(1, per_step(calls)), "call") + ", " +
           Milliseconds(ns * 1e-6);
  };
  finding.evidence = "The program fills gradients with zeros" +
                     cost(found.zeroing.size(), zero) + " per step)";
  if (!found.adding.empty()) {
    finding.evidence += ", and backward adds to these zeros" +
                        cost(found.adding.size(), add) + ")";
  }
  finding.evidence += ".";
  finding.where =
      std::string(m.trace.name(m.trace.ops()[found.zeroing.front()].name));
  finding.assumption = "nothing reads a gradient before backward writes it";
  finding.fix_cpp =
      "call optimizer.zero_grad(), which sets gradients to None by default, "
      "not zero_grad(/*set_to_none=*/false)";
  finding.fix_python =
      "call optimizer.zero_grad(set_to_none=True), which is the default";
  finding.wrong_if = "gradients are accumulated over several backward passes";
  return Fire(std::move(finding), Edit{.drop_zero_grad = true}, zero + add);
}

// --- ddp-extra-copies

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
                     " per step take " + Milliseconds(host * 1e-6) +
                     " of host time and " + Milliseconds(device * 1e-6) +
                     " of device time.";
  if (buffers.count > 0) {
    finding.evidence +=
        " It also broadcasts buffers before each forward pass: " +
        Count(std::llround(buffers.count), "broadcast") +
        (std::llround(buffers.count) == 1 ? " per step takes "
                                          : " per step take ") +
        Milliseconds((buffers.issue_ns + buffers.exposed_ns) * 1e-6) + ".";
  }
  for (size_t i = 0; i < std::min<size_t>(3, spans.size()); ++i) {
    finding.examples.push_back({-1, spans[i].span.begin_ns,
                                spans[i].span.end_ns, "copy_bucket_to_grad"});
  }
  finding.where = "torch.distributed.ddp.reducer::copy_bucket_to_grad";
  finding.assumption =
      "gradients become views of the buckets; the multiplication that averages "
      "them remains";
  finding.fix_cpp =
      "make the gradients views of the flat buckets instead of copies";
  finding.fix_python =
      "DistributedDataParallel(model, gradient_as_bucket_view=True), and "
      "broadcast_buffers=False if BatchNorm's statistics may differ by rank";
  finding.wrong_if = "the program detaches or replaces .grad between steps";
  return Fire(std::move(finding), Without(spans, work), host + device);
}

constexpr Rule kRules[] = {
    {.id = "ddp-extra-copies",
     .question = "Does DDP copy gradients out of its buckets?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .causes = {Cause::kCopy, Cause::kCompute, Cause::kDispatch},
     .check = &CheckExtraCopies,
     .reference = "PyTorch documentation: DistributedDataParallel, "
                  "gradient_as_bucket_view",
     .detect = "copy_bucket_to_grad takes 1 % of the step on host and device "
               "together",
     .avoid = "gradient_as_bucket_view is on, because then there are no copies",
     .fix_cpp = "make the gradients views of the buckets",
     .fix_python = "DistributedDataParallel(gradient_as_bucket_view=True)",
     .change = "gradients as views of their buckets"},
    {.id = "zero-grad-kernels",
     .question = "Are gradients set to zero instead of to None?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckZeroGrad,
     .reference = "PyTorch Performance Tuning Guide: Set gradients to None",
     .detect = "gradients are filled with zeros in a steady step; replay "
               "predicts the gain, which is often nothing",
     .avoid = "gradients are accumulated over several backward passes",
     .fix_cpp = "call optimizer.zero_grad(), which sets gradients to None by "
                "default",
     .fix_python = "call optimizer.zero_grad(set_to_none=True), which is the "
                   "default",
     .change = "gradients set to None"}};

}  // namespace
}  // namespace gradients_rules

extern const std::span<const Rule> kGradients = gradients_rules::kRules;

}  // namespace stepscope
