// Do chains of elementwise kernels write results that the next kernel reads
// again? Sources: PyTorch Performance Tuning Guide, "Fuse pointwise
// operations"; "17 tips" (5x on a GELU); the ResNet-18 case study, step 7.
// Inductor also fuses a reduction over rows with the ops before it and with ops
// that use its results and the rows, as in a normalisation. Without shapes, a
// fused chain of n kernels is predicted to take 1/n of the time, but at least a
// third.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/kernel_evidence.h"
#include "evidence/launches.h"
#include "words/quantities.h"

namespace stepscope {
namespace fusion_rules {
namespace {

constexpr size_t kLeastChain = 3;
// Kernels on parts of a tensor of at least this size, such as the halves of a
// rotation, belong to the chain of the whole tensor.
constexpr double kPart = 0.5;
constexpr double kRows = 1.0 / 16;  // most elements that a reduction leaves
constexpr double kMostSaved = 0.66;
constexpr double kKernelNs = 2'000;  // the shortest time of a kernel
// Starting and ending is a small part of a kernel of this length.
constexpr double kTellingNs = 10 * kKernelNs;

bool Fuses(const KernelUse& use) {
  return (use.kind == KernelClass::kElementwise ||
          use.kind == KernelClass::kReduction ||
          use.kind == KernelClass::kCopy) &&
         !use.compiled && !use.multiplies && !use.in_optimizer &&
         (use.serves == KernelClass::kElementwise ||
          use.serves == KernelClass::kReduction ||
          use.serves == KernelClass::kCopy);
}

using Chain = std::vector<const KernelUse*>;

// True if the kernels work on tensors of one size, or one of them on a half.
// Judged by shapes, or without shapes by equal grids.
bool SameSize(const AnalysisContext& m, const KernelUse& a,
              const KernelUse& b) {
  if (a.elements > 0 && b.elements > 0) {
    return std::min(a.elements, b.elements) >=
           kPart * std::max(a.elements, b.elements);
  }
  const Kernel& left = m.trace.kernels()[a.kernel];
  const Kernel& right = m.trace.kernels()[b.kernel];
  return left.grid[0] > 0 && left.grid == right.grid &&
         left.block == right.block;
}

// True for results of a reduction in the chain, and for tensors made from them.
bool IsOfRows(const Chain& chain, const KernelUse& use) {
  return use.elements > 0 && use.elements <= kRows * chain.front()->elements;
}

bool Reduces(const KernelUse& use) {
  return use.kind == KernelClass::kReduction;
}

// A chain that may continue.
struct OpenChain {
  Chain uses = {};
  bool reduced = false;  // one of them reduces
};

bool Continues(const AnalysisContext& m, const OpenChain& chain,
               const KernelUse& use) {
  const KernelUse& last = *chain.uses.back();
  if (last.step != use.step) return false;
  if (last.op != kNone && use.op != kNone &&
      m.trace.ops()[last.op].thread != m.trace.ops()[use.op].thread) {
    return false;  // forward and backward
  }
  // Without shapes, assume that the kernels after a reduction work on fewer
  // elements.
  if (Reduces(last) && last.elements <= 0) return false;
  return SameSize(m, *chain.uses.front(), use) ||
         (chain.reduced && IsOfRows(chain.uses, use));
}

bool HasBytes(const KernelUse* use) { return use->bytes >= 0; }

// True if the traffic of the chain is known. Of torch.cat, only the sizes are.
bool IsMeasured(const AnalysisContext& m, const Chain& chain) {
  return m.kernels.peaks.exact &&
         std::ranges::all_of(
             chain, [](const KernelUse* use) { return use->elements > 0; }) &&
         std::ranges::any_of(chain, &HasBytes);
}

// Two kernels in a row may be neighbours by chance, so they need more evidence.
bool IsMeasuredPair(const AnalysisContext& m, const Chain& chain) {
  return chain.size() == 2 && IsMeasured(m, chain) &&
         std::ranges::all_of(chain, &HasBytes);
}

double BytesOfElement(const KernelUse& use) {
  return Is16Bit(use.precision) ? 2 : 4;
}

std::vector<Chain> FindChains(const AnalysisContext& m) {
  // A product launched between two elementwise kernels separates them, because
  // the second kernel may read its result.
  const std::vector<int64_t> products = LaunchesOfProducts(m);
  const auto separated = [&](const KernelUse& a, const KernelUse& b) {
    const auto next =
        std::ranges::lower_bound(products, LaunchedNs(m.trace, a.kernel));
    return next != products.end() && *next < LaunchedNs(m.trace, b.kernel);
  };
  std::map<int64_t, OpenChain> open;  // by stream
  std::vector<Chain> chains;
  const auto close = [&](OpenChain& chain) {
    Chain& uses = chain.uses;
    while (!uses.empty() && IsOfRows(uses, *uses.back())) uses.pop_back();
    if (uses.size() >= kLeastChain || IsMeasuredPair(m, uses)) {
      chains.push_back(std::move(uses));
    }
    chain = {};
  };
  for (const KernelUse& use : m.kernels.uses) {
    OpenChain& chain = open[m.trace.kernels()[use.kernel].stream];
    if (!Fuses(use)) {
      close(chain);
      continue;
    }
    if (!chain.uses.empty() &&
        (!Continues(m, chain, use) || separated(*chain.uses.back(), use))) {
      close(chain);
    }
    chain.uses.push_back(&use);
    chain.reduced |= Reduces(use);
  }
  for (auto& [stream, chain] : open) close(chain);
  return chains;
}

// The rate in bytes/ns at which a fused kernel would read and write. The device
// may fall short of its data sheet (low clocks, a shared device, strided
// tensors). Then no kernel of the chain that is long enough to tell reaches it.
double ReachedRate(const AnalysisContext& m, const Chain& chain) {
  double reached = 0;
  for (const KernelUse* use : chain) {
    if (use->bytes < 0 || use->ns < kTellingNs) continue;
    reached = std::max(reached, use->bytes / use->ns);
  }
  const double expected = kGoodBandwidth * m.kernels.peaks.bytes_per_ns;
  return reached > 0 ? std::min(reached, expected) : expected;
}

double FusedNs(const AnalysisContext& m, const Chain& chain, double ns) {
  if (!IsMeasured(m, chain)) {
    const double fewer = 1.0 / static_cast<double>(chain.size());
    return std::max({fewer * ns, (1 - kMostSaved) * ns, kKernelNs});
  }
  // A fused kernel keeps intermediate results in registers, so it neither
  // writes nor reads them.
  double bytes = 0;
  for (const KernelUse* use : chain) {
    // torch.cat, whose bytes are not known, reads and writes each element once.
    const double moved = 2 * use->elements * BytesOfElement(*use);
    bytes += use->bytes >= 0 ? use->bytes : moved;
    if (use == chain.back() || Reduces(*use)) continue;
    bytes -= moved;
  }
  bytes = std::max(bytes, 2 * 2 * chain[0]->elements);
  return std::max(bytes / ReachedRate(m, chain), kKernelNs);
}

// Returns the ops of a chain, as "add > mul > relu > ...".
std::string ChainName(const AnalysisContext& m, const Chain& chain) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(chain.size(), 4); ++i) {
    if (chain[i]->op == kNone) continue;
    std::string_view name = m.trace.name(m.trace.ops()[chain[i]->op].name);
    if (name.starts_with("aten::")) name.remove_prefix(6);
    text += (text.empty() ? "" : " > ") + std::string(name);
  }
  return text + (chain.size() > 4 ? " > ..." : "");
}

// Removes the host time of all ops of the chain but the first, because one op
// launches the fused kernel.
void FuseLaunches(const AnalysisContext& m, const Chain& chain, Edit& edit) {
  for (size_t i = 1; i < chain.size(); ++i) {
    const RowId row = m.trace.kernels()[chain[i]->kernel].op;
    if (row == kNone) continue;
    const Op& op = m.trace.ops()[row];
    edit.cuts.push_back(
        {.thread = op.thread, .span = {op.begin_ns, op.end_ns}, .keep_ns = 0});
  }
}

Verdict CheckUnfusedPointwise(const AnalysisContext& m) {
  const std::vector<Chain> chains = FindChains(m);
  if (chains.empty()) return Clean();
  Edit edit;
  double time = 0, saved = 0, saved_by_pairs = 0;
  int64_t kernels = 0, fused_chains = 0;
  std::map<std::string, double> by_name;
  std::map<std::string, const Chain*> longest;
  for (const Chain& chain : chains) {
    double ns = 0;
    for (const KernelUse* use : chain) ns += use->ns;
    const double fused = FusedNs(m, chain, ns);
    if (fused >= ns) continue;
    for (const KernelUse* use : chain) {
      edit.scales.push_back(Scaled(*use, fused / ns));
    }
    FuseLaunches(m, chain, edit);
    time += ns;
    saved += ns - fused;
    if (chain.size() < kLeastChain) saved_by_pairs += ns - fused;
    ++fused_chains;
    kernels += static_cast<int64_t>(chain.size());
    const std::string name = ChainName(m, chain);
    by_name[name] += ns;
    longest.try_emplace(name, &chain);
  }
  const double steps = m.kernels.steps;
  if (saved / steps * 1e-6 < MinReportableGainMs(m)) return Clean();

  Finding finding;
  // Two kernels in a row may be neighbours by chance.
  finding.confidence =
      2 * saved_by_pairs > saved ? Confidence::kHint : Confidence::kStrong;
  std::vector<std::pair<std::string, double>> order(by_name.begin(),
                                                    by_name.end());
  std::ranges::stable_sort(order, std::greater(),
                           [](const auto& entry) { return entry.second; });
  for (size_t i = 0; i < std::min<size_t>(3, order.size()); ++i) {
    const Chain& chain = *longest[order[i].first];
    const Kernel& first = m.trace.kernels()[chain.front()->kernel];
    const Kernel& last = m.trace.kernels()[chain.back()->kernel];
    finding.examples.push_back(
        {m.steps.windows[chain.front()->step].number, first.begin_ns,
         last.end_ns,
         order[i].first + ": " + Milliseconds(order[i].second / steps * 1e-6) +
             " per step"});
  }
  finding.evidence =
      "Chains of elementwise kernels on tensors of one size take " +
      Milliseconds(time / steps * 1e-6) + " per step (" +
      Percent(time / steps / m.kernels.compute_ns) + " of the compute time): " +
      Count(static_cast<int64_t>(kernels / steps), "kernel") + " in " +
      Count(static_cast<int64_t>(static_cast<double>(fused_chains) / steps),
            "chain") +
      ". A fused chain would read its inputs and write its result only once.";
  finding.where = order[0].first;
  const std::string peaks = PeaksInWords(m.kernels.peaks);
  finding.assumption =
      "each kernel of a chain uses the result of the one before it; " +
      (peaks.empty() || m.trace.op_inputs().empty()
           ? std::string(
                 "a fused chain of n kernels is n times as fast, but at "
                 "most 3 times")
           : "fused kernels reach 80 % of the memory bandwidth; " + peaks);
  finding.fix_cpp =
      std::string(Trains(m.trace)
                      ? "run the chain as a torch::jit-scripted function"
                      : "run the model as an AOTInductor module or the chain "
                        "as a torch::jit-scripted function") +
      ", or use in-place operators";
  finding.fix_python =
      "use torch.compile on the model, or on the function with the chain";
  finding.wrong_if = "the kernels of a chain work on different tensors";
  return FireForKernels(m, std::move(finding), std::move(edit), saved / steps);
}

constexpr Rule kRules[] = {
    {.id = "unfused-pointwise",
     .question = "Would fusing chains of elementwise kernels save memory "
                 "traffic?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kKernel, Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckUnfusedPointwise,
     .reference = "PyTorch Performance Tuning Guide: Fuse pointwise operations",
     .detect =
         "three or more elementwise kernels of equal size (two where shapes "
         "and the device's bandwidth are known) run in a row on one stream, "
         "with reductions over rows and what is made of their results, and "
         "fusing them saves at least 1 % of the step",
     .avoid = "Triton, nvFuser or NNC made the kernels, they belong to the "
              "optimizer, or a matrix product interrupts the chain",
     .fix_cpp = "use a scripted function, or an AOTInductor module (inference)",
     .fix_python = "use torch.compile",
     .change = "elementwise ops fused"}};

}  // namespace
}  // namespace fusion_rules

extern const std::span<const Rule> kFusion = fusion_rules::kRules;

}  // namespace stepscope
