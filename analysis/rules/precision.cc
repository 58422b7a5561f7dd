// Is anything computed in double precision without need, in 16 bits on a CPU
// that is slow with them, or cast to 16 bits again and again? Sources: PyTorch
// documentation, Automatic Mixed Precision, on CPUs (without AMX, AVX512_BF16
// or AVX512_FP16, a product in 16 bits converts its operands or falls back to
// plain loops); the precision advice of the PyTorch Performance Tuning Guide.
// FP64 runs at half the rate of FP32 on data-centre devices and at 1/32 to 1/64
// on others.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/kernel_evidence.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "evidence/program/slow_doubles.h"
#include "evidence/recording_load.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "replay/cpu/op_growth.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace precision_rules {
namespace {

constexpr double kShare = 0.01;    // of the compute time
constexpr double kAllOfIt = 0.90;  // more than this is probably intended
constexpr double kHalf = 0.5;      // time in FP32 / time in FP64
// The float32 peak of a core with AVX-512 at 3 GHz, for bounds on a CPU.
constexpr double kPeakFlopsPerNs = 192;

// Judged by the recorded inputs, or without inputs by the kernel's name.
bool IsFp64(const Trace& trace, const KernelUse& use) {
  if (use.op != kNone && trace.ops()[use.op].inputs != kNone) {
    return TakesDoubles(trace, use.op);
  }
  return use.precision == Precision::kFp64;
}

// True for ops that factorise a matrix or solve with one. Their rounding errors
// grow with the condition of the matrix (N. Higham, "Accuracy and Stability of
// Numerical Algorithms", chapters 9 and 10), so that 24 bits are often too few.
// Names as in ATen 2.x.
bool Decomposes(std::string_view name) {
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name.starts_with("_")) name.remove_prefix(1);
  constexpr std::string_view kFamilies[] = {
      "cholesky",       "geqrf",        "inverse",         "linalg_cholesky",
      "linalg_det",     "linalg_eig",   "linalg_inv",      "linalg_ldl",
      "linalg_lstsq",   "linalg_lu",    "linalg_pinv",     "linalg_qr",
      "linalg_slogdet", "linalg_solve", "linalg_svd",      "lu_",
      "ormqr",          "svd",          "triangular_solve"};
  return std::ranges::any_of(kFamilies, [&](std::string_view family) {
    return name.starts_with(family);
  });
}

// Time of double-precision ops, in ns per step.
struct Doubles {
  double ns = 0;
  double decomposing_ns = 0;  // the part in Decomposes() ops
  double convolving_ns = 0;   // the part in convolutions, on a CPU
  double lstm_ns = 0;         // LSTM layers on a CPU, including calls of ops
};

// True if the program probably needs double precision.
bool AreWanted(const Doubles& doubles, double whole_ns) {
  return doubles.decomposing_ns >= kShare * whole_ns;
}

Finding Describe(const Doubles& doubles, double whole) {
  const double ns = doubles.ns;
  Finding finding;
  const bool decomposing = AreWanted(doubles, whole);
  // oneDNN has kernels for 32 and 16 bits only.
  const bool slowly = doubles.convolving_ns > kHalf * ns;
  const bool stepwise = doubles.lstm_ns > kHalf * ns;
  const bool wanted = decomposing || ns > kAllOfIt * whole;
  finding.confidence = wanted ? Confidence::kHint : Confidence::kProven;
  finding.evidence = "Double-precision ops take " + Milliseconds(ns * 1e-6) +
                     " per step (" + Percent(ns / whole) +
                     " of the compute time).";
  if (decomposing) {
    finding.evidence += " " + Milliseconds(doubles.decomposing_ns * 1e-6) +
                        " of that factorise matrices or solve with them, which "
                        "often needs double precision.";
  } else if (wanted) {
    finding.evidence +=
        " Nearly all computation is in double precision, which may be "
        "intended.";
  }
  if (slowly) {
    finding.evidence += " " + Milliseconds(doubles.convolving_ns * 1e-6) +
                        " of it are convolutions: oneDNN has none in double "
                        "precision, so a slower path runs.";
  }
  if (stepwise) {
    finding.evidence += " LSTM layers take " +
                        Milliseconds(doubles.lstm_ns * 1e-6) +
                        ", calls of ops included: oneDNN has none in double "
                        "precision, so each time step calls ops of its own.";
  }
  finding.fix_cpp =
      "cast where the data enters: tensor.to(at::kFloat); create data and "
      "constants as float";
  finding.fix_python =
      "x = x.float() where the data enters (NumPy creates float64)";
  finding.wrong_if = "the results need the 53 bits of a float64 mantissa";
  return finding;
}

bool IsInDecomposition(const AnalysisContext& m, const KernelUse& use) {
  for (RowId row = use.op; row != kNone; row = m.trace.ops()[row].parent) {
    if (Decomposes(m.trace.name(m.trace.ops()[row].name))) return true;
  }
  return false;
}

Verdict CheckOnGpu(const AnalysisContext& m) {
  const KernelUses& kernels = m.kernels;
  const KernelFilter wanted = [&](const KernelUse& use) {
    return IsFp64(m.trace, use);
  };
  const double ns = kernels.NsPerStep(wanted);
  if (ns <= 0 || ns < kShare * kernels.compute_ns) return Clean();
  // Products follow the rates of the device's units. Memory limits other
  // kernels, and these move half the bytes.
  const double products =
      kernels.peaks.fp64_share > 0 ? kernels.peaks.fp64_share : kHalf;
  Edit edit;
  double saved = 0;
  for (const KernelUse& use : kernels.uses) {
    if (!wanted(use)) continue;
    const double factor = use.multiplies ? products : kHalf;
    edit.scales.push_back(Scaled(use, factor));
    saved += (1 - factor) * use.ns / kernels.steps;
  }
  // Without a prediction, a bound this small is not worth reporting.
  if (!m.replay.check().valid && saved * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  const Doubles doubles = {ns, kernels.NsPerStep([&](const KernelUse& use) {
                             return wanted(use) && IsInDecomposition(m, use);
                           })};
  Finding finding = Describe(doubles, kernels.compute_ns);
  finding.examples = LongestKernels(m, wanted);
  if (!finding.examples.empty()) finding.where = finding.examples[0].what;
  finding.assumption = "in float32, matrix products take " + Percent(products) +
                       (kernels.peaks.known() ? " of the time (peaks of " +
                                                    kernels.peaks.device + ")"
                                              : std::string(" of the time")) +
                       " and other kernels half";
  Verdict verdict =
      FireForKernels(m, std::move(finding), std::move(edit), saved);
  if (AreWanted(doubles, kernels.compute_ns)) {
    verdict.found[0].at_most = FindingSeverity::kLow;
  }
  return verdict;
}

Verdict CheckOnCpu(const AnalysisContext& m) {
  if (!m.trace.watched(Kind::kOpShapes)) {
    return Skip(
        "the types of the ops' inputs were not recorded (record_shapes)");
  }
  std::vector<int8_t> known(m.trace.op_inputs().size(), -1);
  const LstmLayers lstms = FindDoubleLstms(m);
  Doubles doubles{.lstm_ns = lstms.ns};
  double whole = 0, least_ns = 0, halved_ns = 0;
  RowId last = kNone;  // convolution
  Finding found;
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause != Cause::kCompute || segment.op == kNone) continue;
      whole += static_cast<double>(segment.length());
      const RowId inputs = m.trace.ops()[segment.op].inputs;
      if (inputs == kNone) continue;
      // Ops with equal arguments share a row of inputs, so each row is checked
      // once.
      if (known[inputs] < 0) known[inputs] = TakesDoubles(m.trace, segment.op);
      if (known[inputs] == 0) continue;
      const auto ns = static_cast<double>(segment.length());
      doubles.ns += ns;
      const RowId around = DoubleConvolutionAround(m.trace, segment.op);
      if (around != kNone) {
        doubles.convolving_ns += ns;
        // A convolution may consist of several segments, but its operations
        // count once.
        if (last != around) {
          least_ns += CostOf(m.trace, around).flops / kPeakFlopsPerNs;
        }
        last = around;
      } else if (!Covers(lstms.spans, segment.begin_ns)) {
        halved_ns += (1 - kHalf) * ns;
      }
      if (Decomposes(m.trace.name(m.trace.ops()[segment.op].name))) {
        doubles.decomposing_ns += ns;
      }
      if (found.examples.size() < 3) {
        found.examples.push_back({-1, segment.begin_ns, segment.end_ns,
                                  OpWithShapes(m.trace, segment.op)});
      }
    }
  }
  const double steps = std::max<double>(1, m.timelines.size());
  doubles.ns /= steps;
  doubles.decomposing_ns /= steps;
  doubles.convolving_ns /= steps;
  whole /= steps;
  const double saved_ns =
      halved_ns / steps +
      std::max(0.0, doubles.convolving_ns - least_ns / steps) +
      std::max(0.0, LargestUnrecordedNs(m, lstms.ns, lstms.events) -
                        lstms.flops / kPeakFlopsPerNs);
  if (doubles.ns <= 0 || doubles.ns < kShare * whole ||
      saved_ns * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  Finding finding = Describe(doubles, whole);
  finding.examples = found.examples;
  finding.where = finding.examples[0].what;
  finding.assumption = "at best: float32 takes half the time";
  if (doubles.convolving_ns > 0) {
    finding.assumption +=
        ", and convolutions reach the peak of a core with AVX-512";
  }
  if (lstms.ns > 0) {
    finding.assumption +=
        ", and an LSTM layer is one op at the peak of a core with AVX-512";
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = saved_ns,
                    .at_most = AreWanted(doubles, whole)
                                   ? FindingSeverity::kLow
                                   : FindingSeverity::kCritical});
}

Verdict CheckFp64(const AnalysisContext& m) {
  return m.has_gpu ? CheckOnGpu(m) : CheckOnCpu(m);
}

// Small or narrow products reach a tenth of the usual rate in any type, plain
// loops a fiftieth.
constexpr double kSlowFlopsPerNs = kUsualFlopsPerNs / 16;
// Calling an op takes as long as this many operations.
constexpr double kLeastFlops = 1e6;
constexpr char kFloatChange[] = "products in float32";
// Where such a share of the operations is fast, the CPU has instructions for
// the type: forward passes are a third.
constexpr double kFastShare = 0.25;

struct HalfOp {
  size_t step = 0;
  RowId row = kNone;
  double flops = 0, ns = 0;
  bool is_slow() const { return flops <= kSlowFlopsPerNs * ns; }
};

// Returns the products of the steady steps in 16 bits, without depthwise
// convolutions, which are slow in any type.
std::vector<HalfOp> HalfOps(const AnalysisContext& m) {
  std::vector<HalfOp> found;
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row = 0; row < ops.size(); ++row) {
    if (!m.tree.traits(row).matmul || !m.tree.computes(row)) continue;
    const OpCost cost = CostOf(m.trace, row);
    const auto ns = static_cast<double>(ops[row].end_ns - ops[row].begin_ns);
    if (!Is16Bit(cost.precision) || cost.flops < kLeastFlops ||
        cost.depthwise) {
      continue;
    }
    const size_t step = SteadyStepAt(m.steps, ops[row].begin_ns);
    if (step == m.steps.windows.size()) continue;
    found.push_back({step, row, cost.flops, ns});
  }
  return found;
}

Verdict CheckSlowHalf(const AnalysisContext& m) {
  const std::vector<HalfOp> all_ops = HalfOps(m);
  std::vector<HalfOp> slow;
  std::ranges::copy_if(all_ops, std::back_inserter(slow), &HalfOp::is_slow);
  if (!RecursInMostSteps(m.steps, slow)) return Clean();
  std::vector<ShortenedOp> ops;
  double flops = 0, ns = 0, fast_flops = 0;
  // Include fast products, because they change their type together with the
  // slow ones.
  for (const HalfOp& one : all_ops) {
    ops.push_back(
        {one.row, std::min(1.0, one.flops / kPeakFlopsPerNs / one.ns)});
    flops += one.flops;
    ns += one.ns;
    if (one.flops >= kUsualFlopsPerNs * one.ns) fast_flops += one.flops;
  }
  const bool has_fast = fast_flops >= kFastShare * flops;
  const ShortenedOps all = ShortenOps(m, std::move(ops), kFloatChange);
  const HalfOp& longest = *std::ranges::max_element(slow, {}, &HalfOp::ns);
  const std::string type =
      CostOf(m.trace, longest.row).precision == Precision::kFp16 ? "float16"
                                                                 : "bfloat16";
  Finding finding = FindingAbout(m, longest.row, longest.row,
                                 OpWithShapes(m.trace, longest.row));
  finding.evidence =
      "Products in " + type + ", mainly " + OpWithShapes(m.trace, longest.row) +
      ", take " + Milliseconds(all.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step, at " + Number(flops / ns) +
      " GFLOP/s: a core does some 50 in float32. " +
      (has_fast ? "Other products in this type are fast, so these sizes are "
                  "slow, or threads lack cores."
                : "This CPU has no fast way to multiply such numbers in these "
                  "sizes.");
  finding.assumption =
      "at best: products in float32 reach the peak of a core with AVX-512";
  finding.fix_python =
      has_fast
          ? "first see that torch.get_num_threads() is at most "
            "len(os.sched_getaffinity(0)), because threads without a core keep "
            "the others waiting; then try these layers in float32"
          : "train in float32 on this CPU: model.float(), and no "
            "torch.autocast; torch.bfloat16 pays where lscpu lists amx_bf16 or "
            "avx512_bf16";
  finding.fix_cpp =
      has_fast
          ? "first see that at::get_num_threads() is at most the number of "
            "usable cores, because threads without a core keep the others "
            "waiting; then try these layers in float32"
          : "train in float32 on this CPU: model->to(torch::kFloat); "
            "torch::kBFloat16 pays where lscpu lists amx_bf16 or avx512_bf16";
  finding.wrong_if = "the numbers have to be in 16 bits, as in a test";
  if (has_fast) finding.confidence = Confidence::kHint;
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .at_most = has_fast ? FindingSeverity::kLow
                                        : FindingSeverity::kCritical});
}

// A few casts may be those of inputs and results.
constexpr size_t kFewCasts = 8;
constexpr char kCastChange[] = "weights in 16 bits";

bool IsHalf(std::string_view type) {
  return IsAnyOf(type, {"c10::Half", "c10::BFloat16"});
}

// A cast between float32 and 16 bits inside a product, as autocast makes it, or
// of a matrix right before the product that takes it. Other casts that the
// program asks for are ops of their own, or part of type_as.
struct Cast {
  size_t step = 0;
  RowId row = kNone;
  std::string_view to = {};  // the type
};

// True if the next outermost op that computes multiplies by the matrix that the
// outermost op `row` makes. Its other factor has other sizes, so that the
// matrix is a weight.
bool IsTakenByProduct(const AnalysisContext& m, RowId row) {
  const Dims& dims = DimsOf(m.trace, row, 0);
  if (dims.size() != 2) return false;
  const Op& op = m.trace.ops()[row];
  const std::span<const RowId> rows = m.tree.of_thread(op.thread);
  auto next = std::ranges::lower_bound(rows, op.end_ns, {}, [&](RowId other) {
    return m.trace.ops()[other].begin_ns;
  });
  while (next != rows.end() &&
         (m.trace.ops()[*next].parent != kNone ||
          (m.tree.traits(*next).bookkeeping && !m.tree.traits(*next).matmul))) {
    ++next;
  }
  return next != rows.end() && m.tree.traits(*next).matmul &&
         DimsOf(m.trace, *next, 1) == dims && DimsOf(m.trace, *next, 0) != dims;
}

std::vector<Cast> CastsOf(const AnalysisContext& m) {
  std::vector<Cast> found;
  const std::span<const Op> ops = m.trace.ops();
  for (RowId row : m.tree.named("aten::_to_copy")) {
    const Op& op = ops[row];
    const RowId around = OutermostOf(m.trace, row);
    if (!m.tree.traits(around).matmul && !IsTakenByProduct(m, around)) {
      continue;
    }
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step == m.steps.windows.size()) continue;
    for (RowId inner : m.tree.inside(row)) {
      if (ops[inner].parent != row ||
          m.trace.name(ops[inner].name) != "aten::copy_") {
        continue;
      }
      const std::string_view to =
          m.trace.name(TensorArgument(m.trace, inner, 0).type);
      const std::string_view from =
          m.trace.name(TensorArgument(m.trace, inner, 1).type);
      if ((IsHalf(to) && from == "float") || (to == "float" && IsHalf(from))) {
        found.push_back({step, row, to});
      }
    }
  }
  return found;
}

// Training needs weights in float32; running a model does not.
Verdict CheckCasts(const AnalysisContext& m) {
  if (!OnlyInfers(m)) return Clean();
  const std::vector<Cast> found = CastsOf(m);
  const size_t steps = m.steps.steady.size();
  if (found.size() < kFewCasts * steps || !RecursInMostSteps(m.steps, found)) {
    return Clean();
  }
  std::vector<ShortenedOp> ops;
  const Cast* half = nullptr;
  for (const Cast& cast : found) {
    ops.push_back({cast.row, 0});
    if (half == nullptr && cast.to != "float") half = &cast;
  }
  // With casts to float32 alone, the weights are in 16 bits already.
  if (half == nullptr) return Clean();
  ShortenedOps all = ShortenOps(m, std::move(ops), kCastChange);
  const bool is_bf16 = half->to == "c10::BFloat16";
  const std::string python = is_bf16 ? "bfloat16" : "float16";
  Finding finding =
      FindingAbout(m, half->row, half->row, OpWithShapes(m.trace, half->row));
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      MeanCount(static_cast<double>(found.size()) / static_cast<double>(steps),
                "cast") +
      " per step between float32 and " + python +
      ", as torch.autocast makes "
      "them, take " +
      Milliseconds(all.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step. Nothing is trained in this recording, so no weight needs "
      "float32 here.";
  finding.assumption = "at best: no cast is left";
  finding.fix_python = "convert the model once, model.to(torch." + python +
                       "), and its inputs, and leave torch.autocast out";
  finding.fix_cpp = std::string("convert the model once, model->to(torch::") +
                    (is_bf16 ? "kBFloat16" : "kHalf") +
                    "), and its inputs, without autocast";
  finding.wrong_if =
      "the model is trained later (then convert a copy), or results need sums "
      "or normalisations in float32 (compare them)";
  return Fire(std::move(finding), std::move(all.edit), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "inference-casts",
     .question = "Does a model that is only run cast its weights and "
                 "activations to 16 bits each time?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kKernelLatency},
     .check = &CheckCasts,
     .reference = "PyTorch documentation, Automatic Mixed Precision package, "
                  "torch.autocast: https://docs.pytorch.org/docs/stable/"
                  "amp.html",
     .detect = "nothing is trained, and at least eight casts per step between "
               "float32 and 16 bits (aten::_to_copy) run inside products, in "
               "two thirds of the steps",
     .avoid = "a backward pass or an optimizer runs: then autocast keeps "
              "weights in float32 for a reason; the program casts by ops of "
              "its own, as inputs",
     .fix_cpp = "model->to(torch::kBFloat16) once",
     .fix_python = "model.to(torch.bfloat16) once, without torch.autocast",
     .change = "weights in 16 bits"},
    {.id = "fp64-compute",
     .question = "Is anything computed in double precision?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckFp64,
     .reference = "PyTorch Performance Tuning Guide: Use mixed precision; "
                  "devices' FP64 rates",
     .detect = "ops with double inputs, or kernels with FP64 in their names, "
               "take 1 % of the compute time or more",
     .avoid =
         "more than 90 % of the compute time is FP64, which is probably "
         "intended: then the finding is only a hint. If factorisations "
         "and solvers of matrices (inverse, cholesky, svd) in double take "
         "1 % of the compute time, it is low, too, because they often need "
         "it",
     .fix_cpp = "at::kFloat where the data is created",
     .fix_python = "x.float() where the data enters",
     .change = "float32 instead of float64"},
    {.id = "slow-half-products",
     .question = "Do 16-bit products run slowly because the CPU has no "
                 "instructions for them?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckSlowHalf,
     .reference = "PyTorch documentation, Automatic Mixed Precision: "
                  "https://docs.pytorch.org/docs/stable/amp.html",
     .detect =
         "in two thirds of the steps, matrix products or convolutions in "
         "float16 or bfloat16, of a million operations or more, run at less "
         "than 3 GFLOP/s, a sixteenth of what a core does in float32",
     .avoid =
         "products in 16 bits run at the rate of float32, or are depthwise "
         "convolutions, which are slow in any type",
     .fix_cpp = "model->to(torch::kFloat)",
     .fix_python = "model.float(), and no torch.autocast"}};

}  // namespace
}  // namespace precision_rules

extern const std::span<const Rule> kPrecision = precision_rules::kRules;

}  // namespace stepscope
