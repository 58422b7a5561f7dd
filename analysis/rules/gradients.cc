// Does the step do unnecessary work on gradients?
// Sources: PyTorch Performance Tuning Guide, "Set gradients to None"; the
// ResNet-18 case study, step 5 (no measurable gain there). No guide mentions
// that DDP copies gradients out of its buckets. Measured: 19.0 of 227.8 ms per
// step in a host-bound run, 1.1 of 98.3 ms per step in a GPU-bound run.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "evidence/call_site.h"
#include "evidence/gradients/unread_gradients.h"
#include "evidence/gradients/unused_results.h"
#include "evidence/host_spans.h"
#include "ops/backward_nodes.h"
#include "ops/op_arguments.h"
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
      "call optimizer.zero_grad(set_to_none=True), the default since torch "
      "2.0: drop set_to_none=False";
  finding.wrong_if = "gradients are accumulated over several backward passes";
  // If gradients are None, backward stores the first gradient of a step instead
  // of adding it to zeros, so the additions disappear as well.
  return Fire(std::move(finding), Edit{.drop_zero_grad = true}, zero + add);
}

// --- ddp-extra-copies

// Returns the spans in which DDP broadcasts the buffers of the model before the
// forward pass: it joins them, broadcasts the result, takes it apart and copies
// each part back, one op for each buffer.
std::vector<HostSpan> BufferBroadcasts(const AnalysisContext& m) {
  std::vector<HostSpan> found;
  if (m.steps.thread == kNone) return found;
  HostSpan span{.thread = m.steps.thread, .span = {}};
  bool joins = false, parts = false;
  const auto close = [&] {
    if (joins && parts && InSteadyStep(m.steps, span.span.begin_ns)) {
      found.push_back(span);
    }
    joins = parts = false;
  };
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    // Spans of ranges and of the collective itself may enclose these ops.
    const std::string_view name = m.trace.name(op.name);
    if (name == "aten::flatten_dense_tensors") {
      close();
      joins = true;
      span.span = {op.begin_ns, op.end_ns};
    } else if (joins && op.begin_ns >= span.span.end_ns) {
      const bool takes_apart = name == "aten::unflatten_dense_tensors";
      const bool belongs = takes_apart || name == "aten::copy_" ||
                           name == "record_param_comms" ||
                           name.find("broadcast") != std::string_view::npos;
      if (!belongs) {
        close();
        continue;
      }
      parts |= takes_apart;
      span.span.end_ns = op.end_ns;
    }
  }
  close();
  return found;
}

// Spans of copies, what they launch, and the time of both per steady step.
struct ExtraCopies {
  std::vector<HostSpan> spans;
  std::vector<ActivityRef> work;
  double host_ns = 0, device_ns = 0;
};
ExtraCopies MeasureCopies(const AnalysisContext& m,
                          std::vector<HostSpan> spans) {
  ExtraCopies copies{.spans = std::move(spans), .work = {}};
  copies.work = LaunchedIn(m, copies.spans);
  copies.host_ns = HostNsPerStep(m, copies.spans);
  copies.device_ns = DeviceNsPerStep(m, copies.work);
  return copies;
}

std::string TimesInWords(const ExtraCopies& copies) {
  return Milliseconds(copies.host_ns * 1e-6) + " of host time and " +
         Milliseconds(copies.device_ns * 1e-6) + " of device time";
}

void AddExamples(const ExtraCopies& copies, const char* what,
                 Finding& finding) {
  for (const HostSpan& one : copies.spans) {
    if (finding.examples.size() == 3) return;
    finding.examples.push_back({-1, one.span.begin_ns, one.span.end_ns, what});
  }
}

void SayCopies(const AnalysisContext& m, const ExtraCopies& copies,
               Finding& finding) {
  finding.evidence =
      "DDP copies every gradient back from its bucket: " +
      Count(std::llround(static_cast<double>(copies.spans.size()) /
                         m.steps.steady.size()),
            "copy", "copies") +
      " per step take " + TimesInWords(copies) + ".";
  finding.where = "torch.distributed.ddp.reducer::copy_bucket_to_grad";
  finding.assumption =
      "gradients become views of the buckets; the multiplication that averages "
      "them remains";
  finding.fix_cpp =
      "make the gradients views of the flat buckets instead of copies";
  finding.fix_python =
      "DistributedDataParallel(model, gradient_as_bucket_view=True)";
  finding.wrong_if = "the program detaches or replaces .grad between steps";
  AddExamples(copies, "copy_bucket_to_grad", finding);
}

// Adds to what SayCopies() may have said.
void SayBuffers(const ExtraCopies& buffers, Finding& finding) {
  const bool also = !finding.evidence.empty();
  const std::string separator = also ? "; " : "";
  finding.evidence +=
      std::string(also ? " It also" : "DDP") +
      " broadcasts the buffers of the model before the forward pass, which "
      "takes " +
      TimesInWords(buffers) + " per step.";
  if (!also) finding.where = "aten::flatten_dense_tensors";
  finding.assumption += separator + "no buffers are broadcast";
  finding.fix_cpp += separator + "do not broadcast buffers in each step";
  finding.fix_python +=
      separator +
      "DistributedDataParallel(model, broadcast_buffers=False), if the "
      "statistics of BatchNorm may differ by rank until the model is saved";
  finding.wrong_if +=
      separator + "the forward pass needs the same buffers on all ranks";
  AddExamples(buffers, "the broadcast of buffers", finding);
}

Verdict CheckExtraCopies(const AnalysisContext& m) {
  const ExtraCopies copies =
      MeasureCopies(m, SpansNamed(m, "copy_bucket_to_grad"));
  const ExtraCopies buffers = MeasureCopies(m, BufferBroadcasts(m));
  if (copies.spans.empty() && buffers.spans.empty()) return Clean();
  std::vector<HostSpan> spans = copies.spans;
  spans.insert(spans.end(), buffers.spans.begin(), buffers.spans.end());
  std::ranges::stable_sort(
      spans, {}, [](const HostSpan& one) { return one.span.begin_ns; });
  const ExtraCopies all = MeasureCopies(m, std::move(spans));
  if ((all.host_ns + all.device_ns) * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  Finding finding;
  finding.confidence = Confidence::kProven;
  if (!copies.spans.empty()) SayCopies(m, copies, finding);
  if (!buffers.spans.empty()) SayBuffers(buffers, finding);
  // The bound adds both times. The replay tells which of them delays the step.
  return Fire(std::move(finding), Without(all.spans, all.work),
              all.host_ns + all.device_ns);
}

// --- unread-gradients

constexpr size_t kSizesShown = 3;

std::string SizesInWords(const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kSizesShown, sizes.size()); ++i) {
    words.push_back(InBrackets(sizes[i]));
  }
  if (sizes.size() > kSizesShown) {
    words.push_back(
        Count(static_cast<int64_t>(sizes.size() - kSizesShown), "other size"));
  }
  return ListedWithAnd(words);
}

// Returns why they are not read, to follow "gradients of 3 parameters".
std::string WhyUnread(const UnreadGradients& found) {
  constexpr char kUntrained[] = "that no optimizer updates";
  constexpr char kCleared[] =
      "that are cleared before any optimizer's step uses them";
  if (!found.cleared) return kUntrained;
  if (!found.untrained) return kCleared;
  return std::string(kUntrained) + ", or " + kCleared;
}

// Says how to keep a backward pass out of a network that another loss trains.
void SayHowToKeepOut(const UnreadGradients& found, Finding& finding) {
  finding.fix_python =
      "detach() what one network passes on to the loss of another, or compute "
      "it under torch.no_grad(), if that loss does not train it; "
      "network.requires_grad_(False) while another one is trained through it, "
      "and True again before its own loss";
  finding.fix_cpp =
      "detach() what one network passes on to the loss of another, or compute "
      "it under a torch::NoGradGuard, if that loss does not train it; "
      "requires_grad_(false) for each parameter of a network while another one "
      "is trained through it, and true again before its own loss";
  finding.assumption =
      found.beside == 0
          ? "at best: backward ends with the gradient of the last parameter "
            "that this pass trains"
          : "of layers through which a trained one may get its gradient, only "
            "the gradients of weights are counted";
}

// The advice must not break the training of layers before these ones. If such
// layers are trained, switching gradients off around these layers would break
// it.
void SayHow(const UnreadGradients& found, Finding& finding) {
  if (found.cleared) return SayHowToKeepOut(found, finding);
  const bool all_behind = found.beside == 0;
  const std::string around =
      all_behind ? " around the layers in front of the first trained one"
                 : " around layers with no trained one in front of them";
  finding.fix_python =
      "frozen.requires_grad_(False), for each frozen module; or "
      "torch.no_grad()" +
      around;
  finding.fix_cpp =
      "requires_grad_(false), for each of frozen->parameters(); or a "
      "torch::NoGradGuard" +
      around;
  finding.assumption =
      all_behind
          ? "at best: backward ends with the gradient of the last trained "
            "parameter"
      : found.dead_ends
          ? "at best: gradients pass through these layers only to trained "
            "layers before them"
          : "of layers through which a trained one may get its gradient, only "
            "the gradients of weights are counted; if nothing that is trained "
            "lies in front of them, no_grad() saves their whole backward pass";
}

// Checks torch.autograd.grad() calls for more weights than the program reads.
Verdict CheckUnusedResults(const AnalysisContext& m) {
  const UnusedResults found = FindUnusedResults(m);
  const std::set<size_t> steps(found.steps.begin(), found.steps.end());
  if (found.ops.empty() || !AreMostSteps(m.steps, steps.size())) return Clean();
  const ShortenedOps left_out =
      ShortenOps(m, found.ops, "no gradients that are not read");
  if (left_out.saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  const auto count = static_cast<double>(m.steps.steady.size());
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "Backward passes that hand gradients back (torch.autograd.grad), " +
      MeanCount(static_cast<double>(found.steps.size()) / count, "time") +
      " per step, compute gradients of " +
      Count(std::llround(found.unread), "weight") +
      " that nothing uses, besides the gradients that are used (" +
      SizesInWords(found.read) + "). That takes " +
      Milliseconds(left_out.saved_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step.";
  const Op& op = m.trace.ops()[found.first];
  finding.where = std::string(m.trace.name(op.name));
  finding.examples.push_back(
      {-1, op.begin_ns, op.end_ns, "the first node of such a pass"});
  finding.assumption =
      "at best: a pass ends with the last gradient that is read";
  finding.fix_python =
      "ask only for the gradients that are used: torch.autograd.grad(loss, "
      "[shared.weight]) in place of grad(loss, list(model.parameters()))";
  finding.fix_cpp =
      "ask only for the gradients that are used: torch::autograd::grad({loss}, "
      "{shared->weight})";
  finding.wrong_if =
      "the program reads the others later, as after the optimizer's step";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = left_out.saved_ns,
                    .trials = {left_out.edit}});
}

Verdict CheckUnreadGradients(const AnalysisContext& m) {
  if (HasModuleHooks(m.trace)) {
    return Skip("hooks of modules see gradients during the backward pass");
  }
  const UnreadGradients found = FindUnreadGradients(m);
  if (!found.unknown.empty()) return Skip(found.unknown);
  if (found.parameters == 0) return CheckUnusedResults(m);
  const ShortenedOps left_out =
      ShortenOps(m, found.ops, "no gradients that are not read");
  if (left_out.saved_ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  Finding finding;
  // Without sizes, an optimizer that trains the same parameters later in the
  // step looks the same.
  finding.confidence =
      (found.sizes.empty() && !found.never_zeroed) || found.few_updates
          ? Confidence::kHint
          : Confidence::kStrong;
  finding.evidence =
      "Backward computes gradients of " +
      Count(std::llround(found.parameters), "parameter") + " " +
      WhyUnread(found) +
      (found.sizes.empty() ? ""
                           : " (" + SizesInWords(found.sizes) + "; " +
                                 Bytes(found.bytes) + ")") +
      ", in every step. That takes " + Milliseconds(left_out.saved_ns * 1e-6) +
      " of the " + Milliseconds(m.step_ns() * 1e-6) + " step.";
  if (found.by_count) {
    finding.evidence +=
        " Their number shows it: the optimizer's step calls fewer ops than "
        "there are gradients. Which parameters it updates was not recorded; "
        "they are taken to be those of the last layers.";
  }
  if (found.never_zeroed) {
    finding.evidence +=
        " They are never set to None either: each step adds to those of the "
        "steps before.";
  }
  if (found.forward != kNone) {
    const Op& op = m.trace.ops()[found.forward];
    finding.where =
        CallSites(m.trace).Place(op.thread, op.begin_ns, found.forward);
    finding.examples.push_back(
        {-1, op.begin_ns, op.end_ns, OpWithShapes(m.trace, found.forward)});
  }
  SayHow(found, finding);
  finding.wrong_if =
      "these parameters are updated by an optimizer that did not step during "
      "the recording, or the program reads their gradients in other ways" +
      std::string(found.sizes.empty() && found.cleared
                      ? "; or a later optimizer's step uses the sum of several "
                        "passes"
                      : "");
  // Fire a bound even if the replay is valid: some of these ops may pass a
  // gradient on to a trained layer (see SayHow). The replay only tells whether
  // they cost anything.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = left_out.saved_ns,
                    .trials = {left_out.edit}});
}

constexpr Rule kRules[] = {
    {.id = "ddp-extra-copies",
     .question = "Does DDP copy gradients out of its buckets, or broadcast "
                 "buffers in each step?",
     .runs = Runs::kGpuOnly,
     .needs = {},
     .causes = {Cause::kCopy, Cause::kCompute, Cause::kDispatch},
     .check = &CheckExtraCopies,
     .reference = "PyTorch documentation: DistributedDataParallel, "
                  "gradient_as_bucket_view",
     .detect = "copy_bucket_to_grad and the broadcast of buffers take 1 % of "
               "the step on host and device together",
     .avoid =
         "gradient_as_bucket_view is on, because then there are no copies, "
         "and buffers are not broadcast",
     .fix_cpp = "make the gradients views of the buckets",
     .fix_python = "DistributedDataParallel(gradient_as_bucket_view=True, "
                   "broadcast_buffers=False)",
     .change = "DDP without extra copies"},
    {.id = "unread-gradients",
     .question = "Does backward compute gradients of parameters that no "
                 "optimizer updates, that are cleared before, or that nothing "
                 "reads?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckUnreadGradients,
     .reference = "PyTorch documentation: Autograd mechanics, locally "
                  "disabling gradient computation",
     .detect = "in every step, backward computes gradients that nothing uses, "
               "and computing them takes 1 % of the step. Gradients count as "
               "unused if no optimizer updates a tensor of their size and no "
               "other op reads one before the next forward pass. They also "
               "count if more parameters of a size get gradients than are "
               "updated; if every pass adds to them while others of their size "
               "are cleared; or if later passes make all gradients of a size "
               "anew before an optimizer or another op takes one of that size. "
               "If an optimizer does not show sizes (compiled, own kernels, "
               "lists of more than 30 tensors), only gradients count that are "
               "never set to None or zero. In a recording without sizes, "
               "gradients count if a pass adds to them in each step while it "
               "makes others anew, with an optimizer's step between passes. "
               "Gradients that a pass returns (torch.autograd.grad) count if "
               "no op takes a tensor of the weight's size before the next pass "
               "that trains",
     .avoid = "fewer than three recorded steps update parameters, ranks share "
              "the optimizer's work (FSDP, ZeRO), or backward passes are "
              "nested (reentrant checkpoints). Gradients of networks that "
              "two optimizers train in turn, as in a GAN, are read, unless "
              "they are cleared before",
     .fix_cpp = "requires_grad_(false) for frozen parameters, or a "
                "torch::NoGradGuard",
     .fix_python = "requires_grad_(False) for frozen parameters, or "
                   "torch.no_grad()",
     .change = "no gradients for frozen parameters"},
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
