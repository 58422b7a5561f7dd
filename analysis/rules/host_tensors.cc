// Are tensors created or pinned on the host without need?
// Sources: PyTorch Performance Tuning Guide, "Create tensors directly on the
// target device"; "17 tips", number 7; PyTorch's guide to pin_memory (pinning
// and copying can take twice a plain copy).
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/host_copies.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace host_tensors_rules {
namespace {

constexpr double kLaunchNs = 10'000;  // of one launch on the device
// How many ops before an upload are searched for the tensor's factory. Without
// a limit, a step with many uploads would be searched from its start for each.
constexpr int kLookBack = 400;

std::string_view NameOf(const Trace& trace, RowId op) {
  return trace.name(trace.ops()[op].name);
}

Span SpanOf(const Op& op) { return {op.begin_ns, op.end_ns}; }

// --- pin-on-main-thread

Verdict CheckPinning(const AnalysisContext& m) {
  std::vector<Span> pinning;
  for (RowId row : m.steps.thread == kNone ? std::span<const RowId>()
                                           : m.tree.of_thread(m.steps.thread)) {
    if (IsAnyOf(NameOf(m.trace, row),
                {"aten::pin_memory", "aten::_pin_memory", "pin_memory"})) {
      pinning.push_back(SpanOf(m.trace.ops()[row]));
    }
  }
  for (const RuntimeCall& call : m.trace.runtime_calls()) {
    const std::string_view name = m.trace.name(call.name);
    const bool pins = name.find("HostAlloc") != std::string_view::npos ||
                      name.find("HostRegister") != std::string_view::npos ||
                      name.find("MallocHost") != std::string_view::npos ||
                      name.find("HostMalloc") != std::string_view::npos;
    if (pins && call.thread == m.steps.thread) {
      pinning.push_back({call.begin_ns, call.end_ns});
    }
  }
  // Merge, because an op that pins memory contains the call that does so.
  pinning = Merge(std::move(pinning));

  const auto steps = static_cast<double>(m.steps.steady.size());
  double total = 0;
  size_t with = 0;
  for (size_t i : m.steps.steady) {
    const int64_t ns = LengthIn(pinning, m.steps.windows[i].host);
    total += static_cast<double>(ns);
    with += ns > 0;
  }
  total /= steps;
  // The caching host allocator pins memory only while its cache fills, so
  // pinning in the first steps alone is harmless.
  if (total * 1e-6 < MinReportableGainMs(m) || !AreMostSteps(m.steps, with)) {
    return Clean();
  }

  Finding finding;
  finding.confidence = Confidence::kProven;
  Edit edit;
  std::vector<Span> longest;
  for (const Span& span : pinning) {
    edit.cuts.push_back({m.steps.thread, span, 0});
    if (InSteadyStep(m.steps, span.begin_ns)) longest.push_back(span);
  }
  std::ranges::stable_sort(longest, std::greater(), &Span::length);
  for (size_t i = 0; i < std::min<size_t>(3, longest.size()); ++i) {
    finding.examples.push_back(
        {m.steps.windows[SteadyStepAt(m.steps, longest[i].begin_ns)].number,
         longest[i].begin_ns, longest[i].end_ns, "pinning host memory"});
  }
  finding.evidence = "The training thread spends " +
                     Milliseconds(total * 1e-6) + " of the " +
                     Milliseconds(m.stats.mean_ms) +
                     " step pinning memory. Pinning and then copying can take "
                     "longer than a copy from pageable memory.";
  finding.assumption =
      "batches arrive pinned, or in pinned buffers that are reused";
  finding.fix_cpp =
      "allocate a few pinned buffers once "
      "(TensorOptions().pinned_memory(true)) and let the loader's workers fill "
      "them in rotation";
  finding.fix_python =
      "DataLoader(..., pin_memory=True), which pins on a separate thread; or "
      "reuse a few pinned buffers instead of calling .pin_memory() in the loop";
  finding.wrong_if = "the pinned tensors stay alive and are never copied again";
  return Fire(std::move(finding), std::move(edit), total);
}

// --- host-created-tensor

// A tensor that is created on the host and then copied to the device.
struct Pair {
  Span made = {};  // the factory, or the fill after aten::empty
  Span sent = {};  // the outermost op of the upload
  RowId factory;   // op
  RowId copy;      // in copies()
  size_t wait;     // in AnalysisContext::waits; SIZE_MAX if none
  size_t step;
  bool steady;
};

bool IsFactory(std::string_view name) {
  return IsAnyOf(name,
                 {"aten::zeros", "aten::ones", "aten::full", "aten::rand",
                  "aten::randn", "aten::randint", "aten::linspace", "aten::eye",
                  "aten::zeros_like", "aten::ones_like", "aten::rand_like",
                  "aten::randn_like", "aten::full_like"});
}
bool IsFill(std::string_view name) {
  return IsAnyOf(name, {"aten::fill_", "aten::zero_", "aten::normal_",
                        "aten::uniform_", "aten::random_", "aten::bernoulli_"});
}
bool IsUploadOp(std::string_view name) {
  return IsAnyOf(name,
                 {"aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda"});
}

class PairFinder {
 public:
  explicit PairFinder(const AnalysisContext& m)
      : m_(m), trace_(m.trace), launches_(OpsThatLaunch(m.trace)) {}

  std::vector<Pair> Find() const {
    std::vector<Pair> pairs;
    for (const HostCopy& upload : FindHostCopies(m_, Direction::kToDevice)) {
      Pair pair = PairOf(upload);
      if (pair.factory != kNone) pairs.push_back(pair);
    }
    return pairs;
  }

 private:
  Pair PairOf(const HostCopy& upload) const {
    Pair pair{.factory = kNone,
              .copy = upload.copy,
              .wait = upload.wait,
              .step = upload.step,
              .steady = upload.steady};
    RowId op = trace_.copies()[upload.copy].op;
    if (op == kNone) return pair;
    while (trace_.ops()[op].parent != kNone &&
           IsUploadOp(NameOf(trace_, trace_.ops()[op].parent))) {
      op = trace_.ops()[op].parent;
    }
    const TensorShape tensor = SourceOf(trace_, op);
    if (ElementsOf(tensor) <= 1) return pair;  // a constant

    pair.sent = SpanOf(trace_.ops()[op]);
    pair.factory = FactoryOf(op, tensor, m_.steps.windows[upload.step].host);
    if (pair.factory != kNone) pair.made = SpanOf(trace_.ops()[pair.factory]);
    return pair;
  }

  // Returns the last op before `sent` that takes a tensor of this shape and
  // type, if that op creates the tensor; otherwise kNone.
  RowId FactoryOf(RowId sent, const TensorShape& tensor,
                  const Span& step) const {
    const auto rows = m_.tree.of_thread(trace_.ops()[sent].thread);
    auto it = std::ranges::lower_bound(rows, sent);
    for (int i = 0; i < kLookBack && it != rows.begin(); ++i) {
      const RowId row = *--it;
      // A tensor made in an earlier step was kept. It was not made for this
      // upload.
      if (trace_.ops()[row].begin_ns < step.begin_ns) break;
      if (launches_[row] || !Takes(trace_, row, tensor)) continue;
      if (!IsFill(NameOf(trace_, row))) return kNone;  // another op uses it
      // aten::zeros calls aten::zero_, which calls aten::fill_ for large
      // tensors.
      RowId fill = row;
      RowId parent = trace_.ops()[fill].parent;
      while (parent != kNone && IsFill(NameOf(trace_, parent))) {
        fill = parent;
        parent = trace_.ops()[fill].parent;
      }
      if (parent != kNone && IsFactory(NameOf(trace_, parent))) return parent;
      // Without a factory op, a new tensor shows as aten::empty and a fill. A
      // reused buffer has no aten::empty.
      while (*it != fill) --it;
      const bool fresh =
          it != rows.begin() && NameOf(trace_, *std::prev(it)) == "aten::empty";
      return fresh ? fill : kNone;
    }
    return kNone;
  }

  const AnalysisContext& m_;
  const Trace& trace_;
  std::vector<bool> launches_;
};

Verdict CheckHostCreated(const AnalysisContext& m) {
  const std::vector<Pair> pairs = PairFinder(m).Find();
  double total = 0, count = 0;
  Edit edit;
  std::vector<const Pair*> longest;
  for (const Pair& pair : pairs) {
    const RowId thread = m.trace.ops()[pair.factory].thread;
    // On the device, the factory costs one launch.
    edit.cuts.push_back({thread, pair.made, kLaunchNs});
    edit.cuts.push_back({thread, pair.sent, 0});
    edit.scales.push_back({{ActivityTable::kCopy, pair.copy}, 0});
    if (pair.wait != SIZE_MAX) {
      const HostWait& wait = m.waits.all[pair.wait];
      for (RowId call : {wait.copy_call, wait.sync_call}) {
        if (call != kNone) edit.no_wait.push_back(call);
      }
    }
    if (!pair.steady) continue;
    ++count;
    total += static_cast<double>(pair.made.length() + pair.sent.length());
    longest.push_back(&pair);
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  total /= steps;
  count /= steps;
  if (count == 0 || total * 1e-6 < MinReportableGainMs(m)) return Clean();

  std::ranges::stable_sort(longest, std::greater(), [](const Pair* pair) {
    return pair->made.length() + pair->sent.length();
  });
  const auto name = [&](const Pair* pair) {
    return std::string(NameOf(m.trace, pair->factory));
  };
  Finding finding;
  finding.confidence = Confidence::kStrong;
  for (size_t i = 0; i < std::min<size_t>(3, longest.size()); ++i) {
    finding.examples.push_back({m.steps.windows[longest[i]->step].number,
                                longest[i]->made.begin_ns,
                                longest[i]->sent.end_ns, name(longest[i])});
  }
  const Copy& copy = m.trace.copies()[longest[0]->copy];
  const std::string tensors = MeanCount(count, "tensor");
  finding.evidence =
      tensors + " per step " + (tensors == "1 tensor" ? "is" : "are") +
      " created on the host and copied to the device right away, which takes " +
      Milliseconds(total * 1e-6) + " of the " + Milliseconds(m.stats.mean_ms) +
      " step.";
  finding.where =
      name(longest[0]) +
      (copy.bytes > 0 ? ", " + Bytes(static_cast<double>(copy.bytes)) + " each"
                      : std::string());
  finding.assumption =
      "the device creates each of them at the cost of one launch";
  finding.fix_cpp =
      "create them on the device, such as torch::zeros(n, "
      "torch::device(torch::kCUDA)); keep constants in buffers";
  finding.fix_python =
      "create them on the device, such as torch.rand(n, device=\"cuda\"); "
      "register_buffer for constants";
  finding.wrong_if =
      "the values must come from the CPU's random number generator, or other "
      "code reads the tensor on the host";
  return Fire(std::move(finding), std::move(edit), total);
}

constexpr Rule kRules[] = {
    {.id = "pin-on-main-thread",
     .question = "Does the training thread pin memory in every step?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kRuntimeCall},
     .causes = {Cause::kDispatch, Cause::kHostCode, Cause::kData},
     .check = &CheckPinning,
     .reference = "PyTorch's guide to pin_memory() and non_blocking=True",
     .detect = "pin_memory(), or calls that allocate or register pinned "
               "memory, take 1 % of the step or more on the training thread, "
               "in two thirds of the steps",
     .avoid = "the loader's own thread pins the memory, or the cache of pinned "
              "memory fills in the first steps",
     .fix_cpp = "reuse a few pinned buffers",
     .fix_python = "DataLoader(pin_memory=True), or reuse pinned buffers",
     .change = "pinned buffers reused"},
    {.id = "host-created-tensor",
     .question =
         "Are tensors created on the host only to be copied to the device?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp, Kind::kCopy, Kind::kOpShapes},
     .causes = {Cause::kBlockingCopy, Cause::kCopy, Cause::kDispatch,
                Cause::kHostCode},
     .check = &CheckHostCreated,
     .reference = "PyTorch Performance Tuning Guide: Create tensors directly "
                  "on the target device",
     .detect = "a factory op on the host is followed by an upload of the same "
               "shape and type, on the same thread and in the same step, and "
               "both together take 1 % of the step or more",
     .avoid = "other ops use the tensor in between, it holds a single value, "
              "or its buffer is reused",
     .fix_cpp = "torch::zeros(n, torch::device(torch::kCUDA))",
     .fix_python = "torch.rand(n, device=\"cuda\")",
     .change = "tensors created on the device"}};

}  // namespace
}  // namespace host_tensors_rules

extern const std::span<const Rule> kHostTensors = host_tensors_rules::kRules;

}  // namespace stepscope
