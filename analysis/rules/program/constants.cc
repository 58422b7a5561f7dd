// Does each step build tensors that are always the same?
// Source: PyTorch documentation of torch.nn.Module.register_buffer, "a buffer
// that should not be considered a model parameter".
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/program/graph_walks.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/plain_name.h"
#include "evidence/recording_load.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace constants_rules {
namespace {

using Sizes = Dims;

std::optional<double> RealIn(std::string_view text) {
  // Uses strtod, because libc++ 14 has no from_chars for double.
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size()) return {};
  return value;
}

// Returns the numbers in a text like "[2, 3]".
std::optional<Sizes> ListIn(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) return {};
  text = text.substr(1, text.size() - 2);
  Sizes numbers;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    int64_t number = 0;
    if (std::from_chars(one.data(), one.data() + one.size(), number).ec !=
        std::errc()) {
      return {};
    }
    numbers.push_back(number);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return numbers;
}

std::optional<Sizes> Broadcast(const std::vector<Sizes>& all) {
  Sizes made;
  for (const Sizes& one : all) {
    if (one.size() > made.size()) {
      made.insert(made.begin(), one.size() - made.size(), 1);
    }
    for (size_t i = 0; i < one.size(); ++i) {
      int64_t& size = made[made.size() - one.size() + i];
      if (size != 1 && one[i] != 1 && size != one[i]) return {};
      size = std::max(size, one[i]);
    }
  }
  return made;
}

// True for ops that can make a tensor from numbers alone, without randomness.
bool MakesFromNumbers(std::string_view name) {
  return IsAnyOf(PlainName(name),
                 {"arange", "ones", "zeros", "full", "linspace", "logspace",
                  "eye", "hann_window", "hamming_window", "blackman_window",
                  "bartlett_window", "kaiser_window"});
}

// Infers the result of an op on tensors of known sizes, if its name and its
// recorded arguments determine it.
class Inference {
 public:
  Inference(const Trace& trace, RowId row)
      : trace_(trace), name_(PlainName(trace.name(trace.ops()[row].name))) {
    const RowId inputs = trace.ops()[row].inputs;
    if (inputs == kNone) return;
    known_ = true;
    arguments_ = trace.op_inputs()[inputs].arguments;
    for (const Argument& argument : arguments_) AddTensors(argument);
  }

  // Sizes of the tensor arguments, without Python numbers.
  const std::vector<Sizes>& tensors() const { return tensors_; }
  // Returns the sizes of a tensor made from numbers alone, without randomness.
  std::optional<Sizes> MadeFromNumbers() const {
    if (!known_ || !tensors_.empty()) return {};
    if (name_ == "arange") return Range();
    if (IsAnyOf(name_, {"ones", "zeros", "full"})) return List(0);
    if (IsAnyOf(name_, {"linspace", "logspace"})) return Length(2);
    if (name_ == "eye") {
      const std::optional<Sizes> rows = Length(0), columns = Length(1);
      if (!rows) return {};
      return Sizes{rows->front(), columns ? columns->front() : rows->front()};
    }
    if (name_.ends_with("_window")) return Length(0);
    return {};
  }
  // True if all elements of the result are equal.
  bool fills() const { return IsAnyOf(name_, {"ones", "zeros", "full"}); }
  // True if the op makes a tensor with unequal elements from equal ones.
  bool arranges() const {
    return IsAnyOf(name_, {"tril", "triu", "cumsum", "cumprod"});
  }
  bool IsPointwise() const {
    return IsAnyOf(
        name_,
        {"add",         "sub",         "rsub",       "mul",         "div",
         "pow",         "exp",         "log",        "sin",         "cos",
         "tan",         "tanh",        "sqrt",       "rsqrt",       "neg",
         "abs",         "square",      "reciprocal", "sigmoid",     "floor",
         "round",       "clamp",       "clamp_min",  "clamp_max",   "eq",
         "ne",          "lt",          "le",         "gt",          "ge",
         "logical_not", "logical_and", "logical_or", "bitwise_not", "maximum",
         "minimum",     "remainder",   "fmod",       "where",       "atan2",
         "masked_fill", "floor_divide"});
  }
  bool computes() const {
    return IsPointwise() || arranges() ||
           IsAnyOf(name_, {"outer", "ger", "cdist", "mm", "softmax",
                           "linalg_inv", "inverse"});
  }
  // Returns how many tensors the op makes.
  int64_t results() const {
    if (name_ == "meshgrid") return static_cast<int64_t>(tensors_.size());
    if (name_ != "unbind" || tensors_.empty()) return 1;
    const std::optional<size_t> dim = Dim(1, tensors_.front().size());
    return dim ? tensors_.front()[*dim] : 1;
  }
  // Returns the sizes of the result. REQUIRES: all tensors are constant.
  std::optional<Sizes> Made() const {
    if (!known_ || tensors_.empty()) return {};
    const Sizes& first = tensors_.front();
    if (IsPointwise()) return Broadcast(tensors_);
    if (IsAnyOf(name_,
                {"to", "_to_copy", "clone", "contiguous", "detach", "tril",
                 "triu", "cumsum", "cumprod", "flip", "roll", "fill", "zero",
                 "copy", "lift_fresh", "softmax", "linalg_inv", "inverse"})) {
      return first;
    }
    if (IsAnyOf(name_, {"sum", "mean", "max", "min"}) && IsOfAll()) {
      return Sizes();
    }
    if (IsAnyOf(name_, {"mm", "matmul"}) && tensors_.size() == 2 &&
        first.size() == 2 && tensors_[1].size() == 2) {
      return Sizes{first[0], tensors_[1][1]};
    }
    if (name_ == "repeat") return Repeated(first);
    if (name_ == "flatten" && arguments_.size() == 3 && Concrete(1) == "0" &&
        Concrete(2) == "-1") {
      return Sizes{ElementsIn(first)};
    }
    if (IsAnyOf(name_, {"view", "reshape", "expand"})) return Resized(first);
    if (IsAnyOf(name_, {"outer", "ger"}) && tensors_.size() == 2) {
      return Sizes{first[0], tensors_[1][0]};
    }
    if (name_ == "cdist" && tensors_.size() == 2 && first.size() == 2) {
      return Sizes{first[0], tensors_[1][0]};
    }
    if (name_ == "meshgrid") return Grid();
    if (IsAnyOf(name_, {"stack", "cat"})) return Joined();
    return Indexed(first);
  }

 private:
  void AddTensors(const Argument& argument) {
    for (const Argument& one : argument.elements) AddTensors(one);
    const std::string_view type = trace_.name(argument.type);
    // Python numbers appear as arguments without sizes, of one of these types.
    const bool number = argument.dims.empty() &&
                        IsAnyOf(type, {"", "double", "long int", "Scalar",
                                       "ScalarList", "TensorList", "bool"});
    if (argument.elements.empty() && !number) {
      tensors_.push_back(argument.dims);
    }
  }

  std::string_view Concrete(size_t index) const {
    return index < arguments_.size() ? trace_.name(arguments_[index].concrete)
                                     : std::string_view();
  }
  std::optional<int64_t> Integer(size_t index) const {
    return NumberIn(Concrete(index));
  }
  std::optional<Sizes> Length(size_t index) const {
    const std::optional<int64_t> length = Integer(index);
    if (!length || *length < 1) return {};
    return Sizes{*length};
  }
  std::optional<Sizes> List(size_t index) const {
    return ListIn(Concrete(index));
  }

  // arange(end), (start, end) and (start, end, step), each with four further
  // arguments.
  std::optional<Sizes> Range() const {
    constexpr size_t kMore = 4;
    if (arguments_.size() <= kMore) return {};
    std::vector<double> numbers;
    for (size_t i = 0; i + kMore < arguments_.size(); ++i) {
      const std::optional<double> number = RealIn(Concrete(i));
      if (!number) return {};
      numbers.push_back(*number);
    }
    const double start = numbers.size() > 1 ? numbers[0] : 0;
    const double end = numbers.size() > 1 ? numbers[1] : numbers[0];
    const double step = numbers.size() > 2 ? numbers[2] : 1;
    if (step == 0 || (end - start) / step < 1) return {};
    return Sizes{static_cast<int64_t>(std::ceil((end - start) / step))};
  }

  std::optional<Sizes> Resized(const Sizes& from) const {
    std::optional<Sizes> sizes = List(1);
    if (!sizes || sizes->empty()) return {};
    int64_t rest = 1;
    for (size_t i = 0; i < sizes->size(); ++i) {
      int64_t& size = (*sizes)[i];
      const size_t before = sizes->size() - from.size();
      if (name_ == "expand" && size == -1 && i >= before) {
        size = from[i - before];
      }
      if (size > 0) rest *= size;
    }
    for (int64_t& size : *sizes) {
      if (size == -1) size = ElementsIn(from) / std::max<int64_t>(rest, 1);
    }
    return sizes;
  }

  // True for a reduction over all dimensions.
  bool IsOfAll() const {
    return arguments_.size() <= 2 && Concrete(1).find('[') == Concrete(1).npos;
  }

  std::optional<Sizes> Repeated(Sizes from) const {
    std::optional<Sizes> times = List(1);
    if (!times || times->size() < from.size()) return {};
    from.insert(from.begin(), times->size() - from.size(), 1);
    for (size_t i = 0; i < from.size(); ++i) (*times)[i] *= from[i];
    return times;
  }

  std::optional<Sizes> Grid() const {
    Sizes made;
    for (const Sizes& one : tensors_) made.push_back(one.empty() ? 1 : one[0]);
    return made;
  }

  std::optional<size_t> Dim(size_t index, size_t rank) const {
    std::optional<int64_t> dim = Integer(index);
    if (dim && *dim < 0) *dim += static_cast<int64_t>(rank);
    if (!dim || *dim < 0 || *dim >= static_cast<int64_t>(rank)) return {};
    return static_cast<size_t>(*dim);
  }

  std::optional<Sizes> Joined() const {
    Sizes made = tensors_.front();
    const bool stacks = name_ == "stack";
    const std::optional<size_t> dim = Dim(1, made.size() + stacks);
    if (!dim) return {};
    if (stacks) {
      made.insert(made.begin() + static_cast<std::ptrdiff_t>(*dim),
                  static_cast<int64_t>(tensors_.size()));
      return made;
    }
    for (size_t i = 1; i < tensors_.size(); ++i) {
      if (tensors_[i].size() != made.size()) return {};
      made[*dim] += tensors_[i][*dim];
    }
    return made;
  }

  std::optional<Sizes> Indexed(Sizes made) const {
    if (name_ == "t" && made.size() == 2) return Sizes{made[1], made[0]};
    const std::optional<size_t> dim =
        // unsqueeze counts in the dimensions of its result.
        Dim(1, made.size() + (name_ == "unsqueeze"));
    if (!dim) return {};
    const auto at = made.begin() + static_cast<std::ptrdiff_t>(*dim);
    if (name_ == "unsqueeze") {
      made.insert(at, 1);
    } else if (IsAnyOf(name_, {"select", "unbind"})) {
      made.erase(at);
    } else if (name_ == "transpose") {
      const std::optional<size_t> other = Dim(2, made.size());
      if (!other) return {};
      std::swap(*at, made[*other]);
    } else if (name_ == "slice") {
      const auto bound = [&](size_t index, int64_t none) {
        int64_t value = Integer(index).value_or(none);
        if (value < 0) value += *at;
        return std::clamp<int64_t>(value, 0, *at);
      };
      const int64_t step = std::max<int64_t>(Integer(4).value_or(1), 1);
      *at = (bound(3, *at) - bound(2, 0) + step - 1) / step;
    } else {
      return {};
    }
    return made;
  }

  const Trace& trace_;
  std::string_view name_;
  std::span<const Argument> arguments_;
  std::vector<Sizes> tensors_;
  bool known_ = false;
};

// A chain of ops that depends only on numbers.
struct Chain {
  size_t step = 0;
  size_t first = 0, last = 0;  // indices in ForwardOps::ops
  Sizes made = {};             // by the last op that computes
};

class ChainFinder {
 public:
  ChainFinder(const AnalysisContext& context, const ForwardOps& forward)
      : m_(context), forward_(forward) {}

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
    const Inference op(m_.trace, row);
    std::optional<Sizes> made = op.MadeFromNumbers();
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
    for (const Sizes& sizes : op.tensors()) {
      Made& known = known_[sizes];
      // If the op takes a single tensor of this size, and an op has already
      // used one, it may be that one.
      if (known.used > 0 && std::ranges::count(op.tensors(), sizes) == 1) {
        continue;
      }
      known.used += known.unused > 0;
      known.unused = std::max<int64_t>(known.unused - 1, 0);
    }
    if (known_.empty()) open_ = {.step = step, .first = index};
    if (!begins && op.computes()) {
      computes_ = true;
      open_.last = index;
      open_.made = *made;
    }
    Made& known = known_[std::move(*made)];
    known.unused += op.results();
    known.varied |= varied;
  }

  bool Varies(const std::vector<Sizes>& tensors) const {
    return std::ranges::any_of(tensors, [&](const Sizes& sizes) {
      const auto known = known_.find(sizes);
      return known != known_.end() && known->second.varied;
    });
  }

  // True if the op takes only tensors that the chain has made. Tensors are
  // identified by size, so others of the same sizes must be ruled out. If the
  // op combines several tensors of one size, the chain must have made that many
  // unused ones. An op on nothing but equal elements does not count, because no
  // program computes that.
  bool IsConstant(const Inference& op) const {
    std::map<Sizes, int64_t> takes;
    for (const Sizes& sizes : op.tensors()) {
      const auto known = known_.find(sizes);
      if (known == known_.end()) return false;
      if (++takes[sizes] > 1 && takes[sizes] > known->second.unused &&
          op.IsPointwise()) {
        return false;
      }
    }
    return !takes.empty() && (!op.IsPointwise() || Varies(op.tensors()));
  }

  void Close() {
    if (computes_) found_.push_back(open_);
    open_ = {.step = m_.steps.windows.size()};
    known_.clear();
    computes_ = false;
  }

  const AnalysisContext& m_;
  const ForwardOps& forward_;
  Chain open_;
  struct Made {
    int64_t unused = 0;  // by no op of the chain so far
    int64_t used = 0;
    bool varied = false;  // at least one has unequal elements
  };
  std::map<Sizes, Made> known_;  // the open chain's tensors, by size
  bool computes_ = false;
  std::vector<Chain> found_;
};

// The work of a chain: each op with its arguments.
using Work = std::vector<std::pair<NameId, RowId>>;

// The chains that run in most steps. Values are per step.
struct Rebuilt {
  double ns = 0, events = 0, chains = 0;
  const Chain* longest = nullptr;
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
  finding.assumption = "at best: tensors that are kept cost nothing";
  finding.fix_python =
      "build them once, as self.register_buffer(name, tensor, "
      "persistent=False), or keep them by size (functools.lru_cache)";
  finding.fix_cpp = "build them once, and keep them with register_buffer";
  finding.wrong_if =
      "a number that the recording does not show changes from step to step";
  return FireBound(std::move(finding),
                   LargestUnrecordedNs(m, found.ns, found.events));
}

constexpr Rule kRules[] = {
    {.id = "constant-rebuilt",
     .question = "Does each step build tensors that are always the same?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckConstantRebuilt,
     .reference = "PyTorch documentation, torch.nn.Module.register_buffer",
     .detect =
         "in two thirds of the steps, a chain of ops runs with the same "
         "arguments that begins with arange, linspace, eye, ones, zeros, full "
         "or a window, takes only tensors of the sizes that it has made "
         "itself, computes something with them, and has no backward pass; all "
         "such chains take 1 % of the step",
     .avoid = "tensors are only filled, sizes change from step to step, or "
              "another op lies in between",
     .fix_cpp = "register_buffer",
     .fix_python = "register_buffer, functools.lru_cache"}};

}  // namespace
}  // namespace constants_rules

extern const std::span<const Rule> kConstants = constants_rules::kRules;

}  // namespace stepscope
