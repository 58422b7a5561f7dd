// Does each step build tensors that are always the same?
// Source: PyTorch documentation of torch.nn.Module.register_buffer, "a buffer
// that should not be considered a model parameter".
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "evidence/recording_load.h"
#include "evidence/tensors/size_inference.h"
#include "ops/contains.h"
#include "ops/loader_spans.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace constants_rules {
namespace {

// A chain of ops that depends only on numbers.
struct Chain {
  size_t step = 0;
  size_t first = 0, last = 0;  // indices in ForwardOps::ops
  Dims made = {};              // by the last op that computes
  bool loading = false;        // while the loader takes a batch
  // Takes numbers that the recording does not show.
  bool has_unknown_numbers = false;
  bool only_compares = true;
};

// An augmentation draws its parameters, a few random numbers. More than that
// are noise, or the order of the samples. Our own choice.
constexpr int64_t kMostParameters = 16;

// Returns when the training thread draws a few random numbers.
std::vector<int64_t> DrawsOfParameters(const AnalysisContext& m,
                                       const std::vector<Span>& loading) {
  std::vector<int64_t> draws;
  for (const Span& span : loading) {
    for (RowId row : m.tree.of_thread(m.steps.thread, span)) {
      if (IsAnyOf(PlainNameOf(m.trace, row),
                  {"bernoulli", "exponential", "normal", "random", "uniform",
                   "randperm", "multinomial", "_sample_dirichlet"}) &&
          ElementsIn(DimsOf(m.trace, row, 0)) <= kMostParameters) {
        draws.push_back(m.trace.ops()[row].begin_ns);
      }
    }
  }
  return draws;
}

class ChainFinder {
 public:
  ChainFinder(const AnalysisContext& context, const ForwardOps& forward)
      : m_(context),
        forward_(forward),
        loading_(LoaderSpans(context.trace, context.steps.thread)),
        draws_(DrawsOfParameters(context, loading_)) {}

  // Returns the chains in time order. Ops that only fill tensors, or whose
  // result is overwritten later, are no chain.
  std::vector<Chain> Find() {
    for (size_t i = 0; i < forward_.ops.size(); ++i) {
      const size_t step =
          SteadyStepAt(m_.steps, m_.trace.ops()[forward_.ops[i]].begin_ns);
      if (step != open_.step) Close();
      if (step == m_.steps.windows.size()) continue;
      Add(i, step);
    }
    Close();
    return std::move(found_);
  }

 private:
  void Add(size_t index, size_t step) {
    const RowId row = forward_.ops[index];
    const Op& recorded = m_.trace.ops()[row];
    // Return early, because most ops neither start a chain nor follow one, and
    // reading their arguments takes time.
    if (known_.empty() && !MakesFromNumbers(m_.trace.name(recorded.name))) {
      return;
    }
    const SizeInference op(m_.trace, row);
    std::optional<Dims> made = op.MadeFromNumbers();
    if (!known_.empty() && op.HoldsOneNumber()) {
      made = Dims();
      open_.has_unknown_numbers = true;
    }
    const bool begins = made.has_value();
    // An op with an autograd node depends on trained tensors.
    if (!begins && IsConstant(op) && forward_.NodesOf(row).empty()) {
      made = op.Made();
    }
    // Any other op ends the chain, because the recording does not show which
    // tensors it takes or overwrites.
    if (!made) return Close();
    const bool varied =
        !op.fills() && (begins || op.arranges() || Varies(op.tensors()));
    for (const Dims& sizes : op.tensors()) {
      Made& known = known_[sizes];
      // If the op takes a single tensor of this size, and an op has already
      // used one, it may be that one.
      if (known.used > 0 && std::ranges::count(op.tensors(), sizes) == 1) {
        continue;
      }
      known.used += known.unused > 0;
      known.unused = std::max<int64_t>(known.unused - 1, 0);
    }
    if (known_.empty()) {
      open_ = {.step = step,
               .first = index,
               .loading = Covers(loading_, recorded.begin_ns)};
    }
    open_.has_unknown_numbers |= op.takes_unknown_number();
    if (!begins && op.computes()) {
      computes_ = true;
      open_.only_compares &= op.Compares();
      open_.last = index;
      open_.made = *made;
    }
    Made& known = known_[std::move(*made)];
    known.unused += op.results();
    known.varied |= varied;
  }

  bool Varies(const std::vector<Dims>& tensors) const {
    return std::ranges::any_of(tensors, [&](const Dims& sizes) {
      const auto known = known_.find(sizes);
      return known != known_.end() && known->second.varied;
    });
  }

  // True if the op takes only tensors that the chain has made. Tensors are
  // identified by size, so others of the same sizes must be ruled out. If the
  // op combines several tensors of one size, the chain must have made that many
  // unused ones. An op on nothing but equal elements does not count, because no
  // program computes that.
  bool IsConstant(const SizeInference& op) const {
    std::map<Dims, int64_t> takes;
    for (const Dims& sizes : op.tensors()) {
      const auto known = known_.find(sizes);
      if (known == known_.end()) return false;
      if (++takes[sizes] > 1 && takes[sizes] > known->second.unused &&
          op.IsPointwise()) {
        return false;
      }
    }
    return !takes.empty() && (!op.IsPointwise() || Varies(op.tensors()));
  }

  // False if the numbers may be those of a sample: its length, which a mask
  // compares with, or what an augmentation has drawn for it.
  bool HasSteadyNumbers(const Chain& chain) const {
    if (!chain.loading || !chain.has_unknown_numbers) return true;
    if (chain.only_compares) return false;
    const int64_t begin_ns = m_.trace.ops()[forward_.ops[chain.first]].begin_ns;
    const auto next =
        std::ranges::upper_bound(loading_, begin_ns, {}, &Span::begin_ns);
    const int64_t loads_ns = std::prev(next)->begin_ns;
    const auto draw = std::ranges::lower_bound(draws_, loads_ns);
    return draw == draws_.end() || *draw > begin_ns;
  }

  void Close() {
    if (computes_ && HasSteadyNumbers(open_)) found_.push_back(open_);
    open_ = {.step = m_.steps.windows.size()};
    known_.clear();
    computes_ = false;
  }

  const AnalysisContext& m_;
  const ForwardOps& forward_;
  const std::vector<Span> loading_;
  const std::vector<int64_t> draws_;
  Chain open_;
  struct Made {
    int64_t unused = 0;  // by no op of the chain so far
    int64_t used = 0;
    bool varied = false;  // at least one has unequal elements
  };
  std::map<Dims, Made> known_;  // the open chain's tensors, by size
  bool computes_ = false;
  std::vector<Chain> found_;
};

// The work of a chain: each op with its arguments.
using Work = std::vector<std::pair<NameId, RowId>>;

// The chains that run in most steps. Values are per step.
struct Rebuilt {
  double ns = 0, events = 0, chains = 0;
  const Chain* longest = nullptr;
  double equal = 0;  // chains like the longest, and that one
};

Rebuilt InMostSteps(const AnalysisContext& m, const ForwardOps& forward,
                    const std::vector<Chain>& chains) {
  std::map<Work, std::vector<const Chain*>> by_work;
  for (const Chain& chain : chains) {
    Work work;
    for (size_t i = chain.first; i <= chain.last; ++i) {
      const Op& op = m.trace.ops()[forward.ops[i]];
      // Ops with equal arguments share a row of inputs, so equal work has equal
      // sizes and numbers.
      work.push_back({op.name, op.inputs});
    }
    by_work[work].push_back(&chain);
  }
  const double steps = static_cast<double>(m.steps.steady.size());
  Rebuilt found;
  double longest_ns = 0;
  for (const auto& [work, equal] : by_work) {
    std::set<size_t> in;
    std::vector<Span> spans;
    for (const Chain* chain : equal) {
      in.insert(chain->step);
      spans.push_back({forward.SpanOf(forward.ops[chain->first]).begin_ns,
                       forward.WithCall(chain->last).end_ns});
    }
    if (!AreMostSteps(m.steps, in.size())) continue;
    const double ns = forward.NsOf(std::move(spans)) / steps;
    found.ns += ns;
    for (const Chain* chain : equal) {
      found.events +=
          static_cast<double>(chain->last - chain->first + 1) / steps;
    }
    found.chains += static_cast<double>(equal.size()) / steps;
    if (ns <= longest_ns) continue;
    longest_ns = ns;
    found.longest = equal.front();
    found.equal = static_cast<double>(equal.size()) / steps;
  }
  return found;
}

Verdict CheckConstantRebuilt(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const ForwardOps forward(m);
  const std::vector<Chain> chains = ChainFinder(m, forward).Find();
  const Rebuilt found = InMostSteps(m, forward, chains);
  const Chain* longest = found.longest;
  if (!longest || found.ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  const RowId first = forward.ops[longest->first];
  const RowId last = forward.ops[longest->last];
  Finding finding = FindingAbout(m, first, last, "the ops of the chain");
  finding.evidence =
      "Each step builds tensors from numbers alone, with the same ops and "
      "sizes each time: " +
      MeanCount(found.chains, "chain") + " of ops per step, the longest from " +
      std::string(m.trace.name(m.trace.ops()[first].name)) + " to " +
      std::string(m.trace.name(m.trace.ops()[last].name)) + ", which makes " +
      InBrackets(longest->made) + ". This takes " +
      Milliseconds(found.ns * 1e-6) + " per step.";
  if (longest->loading) {
    finding.evidence += " The longest is built while a batch is loaded, " +
                        MeanCount(found.equal, "time") + " per step" +
                        (found.equal > 1 ? ", as for each sample." : ".");
  }
  if (longest->loading && longest->has_unknown_numbers) {
    finding.confidence = Confidence::kHint;
    finding.evidence +=
        " The recording does not show all numbers that it takes.";
  }
  finding.assumption = "at best: tensors that are kept cost nothing";
  finding.fix_python =
      "build them once, as self.register_buffer(name, tensor, "
      "persistent=False), or keep them by size (functools.lru_cache)";
  finding.fix_cpp = "build them once, and keep them with register_buffer";
  if (longest->loading) {
    finding.fix_python =
        "build them once, in the dataset's __init__, or keep them by size "
        "(functools.lru_cache); transforms are modules that keep theirs, for "
        "example torchaudio.transforms.Resample in place of "
        "torchaudio.functional.resample";
    finding.fix_cpp = "build them once, in the dataset's constructor";
  }
  finding.wrong_if =
      longest->loading
          ? "a number that the recording does not show changes from sample to "
            "sample, such as one that Python's or NumPy's random module draws"
          : "a number that the recording does not show changes from step to "
            "step";
  return FireBound(std::move(finding),
                   LargestUnrecordedNs(m, found.ns, found.events));
}

constexpr Rule kRules[] = {
    {.id = "constant-rebuilt",
     .question = "Does each step build tensors that are always the same?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode,
                Cause::kData},
     .check = &CheckConstantRebuilt,
     .reference = "PyTorch documentation, torch.nn.Module.register_buffer",
     .detect =
         "in two thirds of the steps, a chain of ops runs with the same "
         "arguments that begins with arange, linspace, eye, ones, zeros, full "
         "or a window, takes only tensors of the sizes that it has made "
         "itself, computes something with them, and has no backward pass; all "
         "such chains take 1 % of the step",
     .avoid = "tensors are only filled, sizes change from step to step, or "
              "another op lies in between. While a batch is loaded, numbers "
              "that were not recorded may be a sample's: such a chain does not "
              "count if it only compares, as masks do, or if up to 16 random "
              "numbers are drawn before it, as augmentations do",
     .fix_cpp = "register_buffer",
     .fix_python = "register_buffer, functools.lru_cache"}};

}  // namespace
}  // namespace constants_rules

extern const std::span<const Rule> kConstants = constants_rules::kRules;

}  // namespace stepscope
