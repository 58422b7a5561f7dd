#include "steps/step_facts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "ops/host_memory.h"
#include "ops/intervals.h"
#include "steps/optimizer_spans.h"

namespace stepscope {
namespace {

// Words in names of ranges, compared without case and as whole words. Collected
// from public training scripts.
constexpr std::array<std::string_view, 8> kLoggingWords = {
    "checkpoint", "save",        "logging", "log",
    "logger",     "tensorboard", "summary", "state_dict"};
constexpr std::array<std::string_view, 3> kSavingWords = {"checkpoint", "save",
                                                          "state_dict"};
constexpr std::array<std::string_view, 7> kValidationWords = {
    "validate", "validation", "validating", "valid",
    "eval",     "evaluate",   "evaluation"};

// What state_dict(), torch.save() and copies of a model do with each tensor.
constexpr std::array<std::string_view, 5> kTakingOps = {
    "aten::detach", "aten::clone", "aten::to", "aten::_to_copy", "aten::copy_"};

// True for "save_checkpoint" and "log metrics", false for "catalog" and
// "dialog": no letter may touch the word.
bool HasWord(std::string_view name, std::span<const std::string_view> words) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  const auto is_letter = [&](size_t at) {
    return std::isalpha(static_cast<unsigned char>(lower[at])) != 0;
  };
  for (std::string_view word : words) {
    for (size_t at = lower.find(word); at != std::string::npos;
         at = lower.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !is_letter(at - 1)) &&
          (end == lower.size() || !is_letter(end))) {
        return true;
      }
    }
  }
  return false;
}

// torch.save and torch.load are functions of torch/serialization.py.
bool IsSavingFrame(std::string_view name) {
  return name.find("serialization.py") != std::string_view::npos &&
         name.ends_with(": save");
}

bool IsSaving(std::string_view name) {
  return IsSavingFrame(name) || HasWord(name, kSavingWords);
}

// What a range's name says about its step; kUnknown until it is looked up.
enum class NameMeaning : uint8_t { kUnknown, kNothing, kLogging, kValidation };
NameMeaning MeaningOf(std::string_view name) {
  if (IsSavingFrame(name) || HasWord(name, kLoggingWords)) {
    return NameMeaning::kLogging;
  }
  return HasWord(name, kValidationWords) ? NameMeaning::kValidation
                                         : NameMeaning::kNothing;
}

// Fills in the facts of all steps, table by table.
class Collector {
 public:
  Collector(const Trace& trace, const OpTree& tree, const Steps& steps)
      : trace_(trace),
        tree_(tree),
        steps_(steps),
        facts_(steps.windows.size()) {
    for (size_t i = 0; i < facts_.size(); ++i) {
      facts_[i].length_ns = steps.windows[i].tiled.length();
    }
  }

  std::vector<StepFacts> All() {
    Written();
    Ranges();
    Copies();  // needs logging_span from Ranges()
    Ops();
    return std::move(facts_);
  }

 private:
  // The facts of the step whose host window contains `time_ns`, or nullptr.
  StepFacts* At(int64_t time_ns) {
    const auto after = std::ranges::upper_bound(
        steps_.windows, time_ns, {},
        [](const StepWindow& step) { return step.host.begin_ns; });
    if (after == steps_.windows.begin()) return nullptr;
    const auto index = static_cast<size_t>(after - steps_.windows.begin()) - 1;
    return time_ns < steps_.windows[index].host.end_ns ? &facts_[index]
                                                       : nullptr;
  }
  void Copies();
  void Written();
  void Ranges();
  void Ops();
  bool TakesTensor(NameId name) {
    NameTakes& takes = takes_[name];
    if (takes == NameTakes::kUnknown) {
      takes = ReadsTensor(trace_.name(name)) ? NameTakes::kYes : NameTakes::kNo;
    }
    return takes == NameTakes::kYes;
  }
  void AddNamed(NameId name, int64_t begin_ns, int64_t end_ns);

  const Trace& trace_;
  const OpTree& tree_;
  const Steps& steps_;
  std::vector<StepFacts> facts_;
  enum class NameTakes : uint8_t { kUnknown, kNo, kYes };
  std::vector<NameTakes> takes_ = std::vector<NameTakes>(trace_.name_count());
  std::vector<NameMeaning> meaning_ =
      std::vector<NameMeaning>(trace_.name_count());
};

void Collector::Copies() {
  for (const Copy& copy : trace_.copies()) {
    if (!IsHostMemory(copy.destination) || copy.bytes <= 0) continue;
    // A copy belongs to the step that issued it, whenever the device ran it.
    const RuntimeCall* call =
        copy.call == kNone ? nullptr : &trace_.runtime_calls()[copy.call];
    StepFacts* step = At(call == nullptr ? copy.begin_ns : call->begin_ns);
    if (step == nullptr) continue;
    step->to_host_bytes += copy.bytes;
    if (call != nullptr && call->thread == steps_.thread &&
        step->logging_span.begin_ns <= call->begin_ns &&
        call->begin_ns < step->logging_span.end_ns) {
      step->saved_to_host_bytes += copy.bytes;
    }
  }
}

// Matches usage to steps by number, because the time of a sample is after its
// step has ended.
void Collector::Written() {
  std::map<int64_t, size_t> by_number;
  for (size_t i = 0; i < facts_.size(); ++i) {
    by_number[steps_.windows[i].number] = i;
  }
  for (const HostUsage& usage : trace_.host_usage()) {
    const auto step = by_number.find(usage.step);
    if (step == by_number.end()) continue;
    facts_[step->second].written_bytes +=
        std::max<int64_t>(usage.write_bytes, 0);
  }
}

// Only the longest range of a step counts, because shorter ones lie inside it
// or matter less.
void Collector::AddNamed(NameId name, int64_t begin_ns, int64_t end_ns) {
  NameMeaning& meaning = meaning_[name];
  if (meaning == NameMeaning::kUnknown) meaning = MeaningOf(trace_.name(name));
  if (meaning == NameMeaning::kNothing) return;
  StepFacts* step = At(begin_ns);
  if (step == nullptr) return;
  const int64_t length = end_ns - begin_ns;
  if (meaning == NameMeaning::kValidation) {
    step->validation_ns = std::max(step->validation_ns, length);
  } else if (length > step->logging_ns) {
    step->logging_ns = length;
    step->logging = trace_.name(name);
    step->logging_span = {begin_ns, end_ns};
    step->saves = IsSaving(step->logging);
  }
}

void Collector::Ranges() {
  for (const Range& range : trace_.ranges()) {
    if (range.thread != steps_.thread) continue;
    if (IsUserRange(range)) AddNamed(range.name, range.begin_ns, range.end_ns);
    const bool collects = trace_.name(range.name) == "Python GC";
    if (!collects && range.kind != RangeKind::kLoader) continue;
    StepFacts* step = At(range.begin_ns);
    if (step == nullptr) continue;
    (collects ? step->gc_ns : step->loading_ns) +=
        range.end_ns - range.begin_ns;
  }
  for (const PythonFrame& frame : trace_.python_frames()) {
    if (frame.thread != steps_.thread) continue;
    NameMeaning& meaning = meaning_[frame.name];
    if (meaning == NameMeaning::kUnknown) {
      // The names of functions mean little ("log_softmax"), so torch.save is
      // the only Python frame that counts.
      meaning = IsSavingFrame(trace_.name(frame.name)) ? NameMeaning::kLogging
                                                       : NameMeaning::kNothing;
    }
    AddNamed(frame.name, frame.begin_ns, frame.end_ns);
  }
}

void Collector::Ops() {
  for (RowId row = 0; row < trace_.ops().size(); ++row) {
    const Op& op = trace_.ops()[row];
    const bool node = op.kind == OpKind::kBackward;
    // aten::linear calls aten::addmm: one product, counted at the outer op.
    const bool product =
        !tree_.in_backward(row) && op.thread == steps_.thread &&
        tree_.traits(row).matmul &&
        (op.parent == kNone || !tree_.traits(op.parent).matmul);
    const bool takes = op.parent == kNone && op.thread == steps_.thread &&
                       TakesTensor(op.name);
    if (!node && !product && !takes) continue;
    StepFacts* step = At(op.begin_ns);
    if (step == nullptr) continue;
    ++(node ? step->backward : product ? step->forward : step->taken);
  }
}

// The bytes of all parameters; 0 if shapes were not recorded. They are read
// from the argument of the AccumulateGrad nodes, the gradient, which has the
// size of its parameter.
int64_t ParameterBytes(const Trace& trace, const OpTree& tree,
                       const Steps& steps) {
  if (steps.steady.empty()) return 0;
  int64_t bytes = 0;
  const auto passes = AccumulationsOfAPass(trace, tree, steps);
  for (RowId row : passes[steps.steady.front()]) {
    const Op& op = trace.ops()[row];
    if (op.inputs == kNone) continue;
    const std::vector<Argument>& arguments =
        trace.op_inputs()[op.inputs].arguments;
    if (arguments.empty()) continue;
    int64_t elements = 1;
    for (int64_t size : arguments[0].dims) elements *= size;
    const std::string_view type = trace.name(arguments[0].type);
    bytes += elements * (type == "double"                                 ? 8
                         : type == "c10::Half" || type == "c10::BFloat16" ? 2
                                                                          : 4);
  }
  return bytes;
}

}  // namespace

bool ReadsTensor(std::string_view op) {
  return std::ranges::count(kTakingOps, op) > 0;
}

bool IsUserRange(const Range& range) {
  return range.kind == RangeKind::kUser || range.kind == RangeKind::kPhase ||
         range.kind == RangeKind::kNvtx;
}

std::vector<StepFacts> FactsOf(const Trace& trace, const OpTree& tree,
                               const Steps& steps) {
  return Collector(trace, tree, steps).All();
}

std::vector<Span> SavingSpans(const Trace& trace, RowId thread) {
  enum class Answer : uint8_t { kUnknown, kNo, kYes };
  std::vector<Answer> saves(trace.name_count());
  std::vector<Span> spans;
  for (const Range& range : trace.ranges()) {
    if (range.thread != thread || !IsUserRange(range)) continue;
    Answer& answer = saves[range.name];
    if (answer == Answer::kUnknown) {
      answer = IsSaving(trace.name(range.name)) ? Answer::kYes : Answer::kNo;
    }
    if (answer == Answer::kYes) {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

UsualStep UsualOf(const Trace& trace, const OpTree& tree, const Steps& steps,
                  const std::vector<StepFacts>& facts) {
  UsualStep usual;
  if (facts.empty() || steps.steady.empty()) return usual;
  const auto median = [&](int64_t StepFacts::*value) {
    std::vector<double> values;
    values.reserve(facts.size());
    for (const StepFacts& step : facts) {
      values.push_back(static_cast<double>(step.*value));
    }
    return Median(std::move(values));
  };
  std::vector<double> lengths;
  for (size_t i : steps.steady) {
    lengths.push_back(static_cast<double>(facts[i].length_ns));
  }
  usual.length_ns = Median(std::move(lengths));
  usual.to_host_bytes = median(&StepFacts::to_host_bytes);
  usual.written_bytes = median(&StepFacts::written_bytes);
  usual.validation_ns = median(&StepFacts::validation_ns);
  usual.loading_ns = median(&StepFacts::loading_ns);
  usual.forward = median(&StepFacts::forward);
  usual.backward = median(&StepFacts::backward);
  usual.taken = median(&StepFacts::taken);
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    usual.parameters += tree.traits(row).accumulate_grad;
  }
  usual.parameters /= static_cast<double>(facts.size());
  usual.parameter_bytes = ParameterBytes(trace, tree, steps);
  return usual;
}

}  // namespace stepscope
