#include "steps/inferred_steps.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "ops/contains.h"
#include "ops/host_memory.h"
#include "ops/update_span.h"
#include "steps/repeated_work.h"

namespace stepscope {
namespace {

// Thresholds of our own choice, checked on public traces without step marks.
//
// A range that occurs fewer than three times shows no rhythm.
constexpr size_t kMinRepeats = 3;
// The steps must cover half of the time that the thread's ops span.
constexpr double kMinCoverage = 0.5;
// The last step has no next one to end at, so it ends with its range. Below
// this share of the usual step, the rest of the step is missing and it is
// dropped.
constexpr double kWholeRepeat = 0.8;
// Share of the steps that must begin with something new: a batch, an upload or
// a backward pass.
constexpr double kMinFreshFrac = 0.9;
// The most updates of a step in which several optimizers take turns: a GAN's
// critic is updated five times for each update of the generator (Arjovsky et
// al. 2017, "Wasserstein GAN").
constexpr size_t kMostUpdates = 6;

// "Iteration 17" and "iteration 18" are two occurrences of one range.
std::string WithoutNumbers(std::string_view name) {
  std::string text;
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isdigit(byte)) {
      text += static_cast<char>(std::tolower(byte));
    } else if (!text.ends_with('#')) {
      text += '#';
    }
  }
  return text;
}

// Words that programs use for their steps, training or serving (vLLM's
// "execute_...", "decode", "prefill"); parts of words match.
bool NamesStep(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kWords = {
      "step",    "iter",   "batch",   "request", "execute_", "generat",
      "predict", "decode", "prefill", "frame",   "episode"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

// When the thread gets a batch or something is uploaded. Not sorted.
std::vector<int64_t> Deliveries(const Trace& trace, RowId thread) {
  std::vector<int64_t> times;
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kLoader && range.thread == thread) {
      times.push_back(range.begin_ns);
    }
  }
  for (const Copy& copy : trace.copies()) {
    if (!IsHostMemory(copy.source) || copy.call == kNone) continue;
    times.push_back(trace.runtime_calls()[copy.call].begin_ns);
  }
  return times;
}

// Deliveries and backward nodes: signs that a new step has begun. Sorted. A
// layer repeats like a step does, but nothing new arrives at each of its calls.
std::vector<int64_t> StepStartTimes(const Trace& trace, RowId thread) {
  std::vector<int64_t> times = Deliveries(trace, thread);
  for (const Op& op : trace.ops()) {
    if (op.kind == OpKind::kBackward) times.push_back(op.begin_ns);
  }
  std::ranges::sort(times);
  return times;
}

// The time from the start of the thread's first op to the end of its last. It
// is not the whole recording, because what comes before the first op (imports,
// loading a model) does not belong to the loop.
Span ThreadSpan(const Trace& trace, RowId thread) {
  Span span;
  bool any = false;
  for (const Op& op : trace.ops()) {
    if (op.thread != thread) continue;
    if (!any) span = {op.begin_ns, op.end_ns};
    any = true;
    span.end_ns = std::max(span.end_ns, op.end_ns);
  }
  return span;
}

// The occurrences of one range.
struct Repeats {
  std::string name;
  RangeKind kind = RangeKind::kUser;
  std::vector<Span> spans;  // without overlap, in time order
};

// Groups ranges by name, and calls of Python modules by module. An occurrence
// inside an earlier one of the same name is left out, because it is recursion
// and not the next step.
std::vector<Repeats> RepeatedRanges(const Trace& trace, RowId thread) {
  std::map<std::pair<RangeKind, std::string>, Repeats> by_name;
  const auto add = [&](RangeKind kind, std::string name, Span span) {
    Repeats& repeats = by_name[{kind, std::move(name)}];
    repeats.kind = kind;
    if (repeats.spans.empty() || span.begin_ns >= repeats.spans.back().end_ns) {
      repeats.spans.push_back(span);
    }
  };
  for (const Range& range : trace.ranges()) {
    const std::string_view name = trace.name(range.name);
    const bool may_be_step =
        range.kind == RangeKind::kUser || range.kind == RangeKind::kLoader ||
        range.kind == RangeKind::kModule ||
        (range.kind == RangeKind::kCollective &&
         name.find("DataParallel") != std::string_view::npos);
    if (range.thread != thread || !may_be_step) continue;
    // In the names of the program's own ranges, numbers count steps. In the
    // names of modules, they distinguish layers.
    add(range.kind,
        range.kind == RangeKind::kUser ? WithoutNumbers(name)
                                       : std::string(name),
        {range.begin_ns, range.end_ns});
  }
  std::vector<int8_t> is_module(trace.name_count(), -1);
  for (const PythonFrame& frame : trace.python_frames()) {
    int8_t& known = is_module[frame.name];
    if (known < 0) {
      known = trace.name(frame.name).starts_with("nn.Module: ");
    }
    if (!known || frame.thread != thread) continue;
    add(RangeKind::kModule, std::string(trace.name(frame.name)),
        {frame.begin_ns, frame.end_ns});
  }
  std::vector<Repeats> repeated;
  for (auto& [key, repeats] : by_name) {
    if (repeats.spans.size() < kMinRepeats) continue;
    repeats.name = key.second;
    repeated.push_back(std::move(repeats));
  }
  return repeated;
}

// True if the middle occurrence lies inside an occurrence of a range that
// repeats no more often: a layer inside a model. The middle occurrence stands
// for all: the first and the last may be cut by the recording.
bool IsNested(const Repeats& repeats, const std::vector<Repeats>& all) {
  return std::ranges::any_of(all, [&](const Repeats& outer) {
    if (&outer == &repeats || outer.spans.size() > repeats.spans.size()) {
      return false;
    }
    const Span& one = repeats.spans[repeats.spans.size() / 2];
    auto it = std::ranges::upper_bound(outer.spans, one.begin_ns, {},
                                       &Span::begin_ns);
    if (it == outer.spans.begin()) return false;
    --it;
    return it->end_ns >= one.end_ns && it->length() > one.length();
  });
}

// Returns steps that run from the start of each occurrence to the start of the
// next, because a range may cover only the first part of its step: a wait for a
// batch, for example, starts the step that uses the batch.
std::vector<StepWindow> WindowsOf(const Repeats& repeats) {
  std::vector<double> lengths;
  std::vector<StepWindow> windows;
  const auto add = [&](Span host) {
    windows.push_back(
        {.host = host, .number = static_cast<int64_t>(windows.size())});
  };
  for (size_t i = 0; i + 1 < repeats.spans.size(); ++i) {
    const Span host{repeats.spans[i].begin_ns, repeats.spans[i + 1].begin_ns};
    lengths.push_back(static_cast<double>(host.length()));
    add(host);
  }
  const Span& last = repeats.spans.back();
  if (last.length() >= kWholeRepeat * Median(lengths)) add(last);
  return windows;
}

// True if the range can mark steps: it is named like a step, or at least 90 %
// of its steps contain a sign of a new one (see StepStartTimes). Layers meet
// neither condition.
bool StartsNewStep(const Repeats& repeats,
                   const std::vector<StepWindow>& windows,
                   const std::vector<int64_t>& starts) {
  if (repeats.kind == RangeKind::kUser &&
      NamesStep(WithoutNumbers(repeats.name))) {
    return true;
  }
  size_t fresh = 0;
  for (const StepWindow& window : windows) {
    const auto it = std::ranges::lower_bound(starts, window.host.begin_ns);
    fresh += it != starts.end() && *it < window.host.end_ns;
  }
  return fresh >= kMinFreshFrac * windows.size();
}

InferredSteps BetweenRanges(const Trace& trace, RowId thread) {
  const std::vector<Repeats> repeated = RepeatedRanges(trace, thread);
  if (repeated.empty()) return {};
  const std::vector<int64_t> starts = StepStartTimes(trace, thread);
  const double activity = ThreadSpan(trace, thread).length();
  InferredSteps best;
  for (const Repeats& repeats : repeated) {
    if (IsNested(repeats, repeated)) continue;
    std::vector<StepWindow> windows = WindowsOf(repeats);
    const double covered =
        windows.back().host.end_ns - windows.front().host.begin_ns;
    if (covered < kMinCoverage * activity ||
        !StartsNewStep(repeats, windows, starts)) {
      continue;
    }
    // If there are several candidates, the one that occurs least often is the
    // whole step, and the others are parts of it.
    if (!best.windows.empty() && best.windows.size() <= windows.size()) {
      continue;
    }
    best.windows = std::move(windows);
    best.step_source = "the range \"" + repeats.name + "\"";
  }
  return best;
}

// Ops with which programs make or choose the samples of a step.
bool MakesSamples(std::string_view name) {
  return IsAnyOf(name, {"aten::from_blob", "aten::index", "aten::index_select",
                        "aten::multinomial", "aten::rand", "aten::randint",
                        "aten::randn", "aten::randperm"});
}

// Returns the times at which a pass may begin: the thread gets a batch, makes,
// chooses or uploads samples, or runs an op of the model. Sorted.
std::vector<int64_t> PassStarts(const Trace& trace, const OpTree& tree,
                                RowId thread) {
  std::vector<int64_t> times = Deliveries(trace, thread);
  const std::span<const Op> ops = trace.ops();
  RowId outermost = kNone;
  for (RowId row : tree.of_thread(thread)) {
    if (tree.in_backward(row)) continue;
    const std::string_view name = trace.name(ops[row].name);
    if (ops[row].parent == kNone) {
      // An op that records autograd nodes raises the sequence number of the
      // next one.
      if (outermost != kNone && ops[outermost].sequence >= 0 &&
          ops[row].sequence > ops[outermost].sequence) {
        times.push_back(ops[outermost].begin_ns);
      }
      outermost = row;
    }
    if (tree.traits(row).matmul || MakesSamples(name) ||
        name.starts_with("aten::embedding")) {
      times.push_back(ops[outermost == kNone ? row : outermost].begin_ns);
    }
  }
  std::ranges::sort(times);
  return times;
}

// Programs with several optimizers, such as a GAN, update in turns. Returns the
// number of updates after which the backward passes repeat: the smallest such
// number, if the passes before the updates of one turn differ in their number
// of nodes; otherwise 1.
size_t UpdatesPerTurn(const std::vector<int64_t>& nodes) {
  for (size_t turn = 1; turn <= kMostUpdates && 2 * turn <= nodes.size();
       ++turn) {
    size_t same = 0;
    for (size_t i = turn; i < nodes.size(); ++i) {
      same += nodes[i] == nodes[i - turn];
    }
    const size_t compared = nodes.size() - turn;
    if (static_cast<double>(same) >=
        kMinFreshFrac * static_cast<double>(compared)) {
      return turn;
    }
  }
  return 1;
}

// Returns the thread's updates in time order. Updates without a backward pass
// between them are joined, because a model may have several optimizers, and so
// are those that take turns.
std::vector<Span> UpdatesOf(const Trace& trace, RowId thread) {
  std::vector<Span> single;
  for (const Range& range : trace.ranges()) {
    if (range.thread == thread && IsOptimizerStep(trace, range)) {
      single.push_back({range.begin_ns, range.end_ns});
    }
  }
  std::ranges::sort(single, {}, &Span::end_ns);
  std::vector<int64_t> backward;
  for (const Op& op : trace.ops()) {
    if (op.kind == OpKind::kBackward) backward.push_back(op.begin_ns);
  }
  std::vector<Span> updates;
  std::vector<int64_t> nodes;  // backward ops before each of them
  auto before = backward.begin();
  for (const Span& update : single) {
    const auto to = std::lower_bound(before, backward.end(), update.begin_ns);
    if (!updates.empty() && !backward.empty() && to == before) {
      updates.back().end_ns = std::max(updates.back().end_ns, update.end_ns);
    } else if (updates.empty() || update.end_ns > updates.back().end_ns) {
      updates.push_back(update);
      nodes.push_back(to - before);
    }
    before = to;
  }
  // What comes before the first update may be cut.
  if (!nodes.empty()) nodes.erase(nodes.begin());
  const size_t turn = UpdatesPerTurn(nodes);
  std::vector<Span> turns;
  for (size_t i = turn; i <= updates.size(); i += turn) {
    turns.push_back({updates[i - turn].begin_ns, updates[i - 1].end_ns});
  }
  return turns;
}

// Returns the steps from one batch to the next. An update ends a pass in every
// training loop, even in one that accumulates gradients over several backward
// passes. What follows it, such as a metric, belongs to the same step, until a
// sign that the next one has begun.
InferredSteps BetweenUpdates(const Trace& trace, const OpTree& tree,
                             RowId thread) {
  const std::vector<Span> updates = UpdatesOf(trace, thread);
  if (updates.size() < 2) return {};
  const std::vector<int64_t> starts = PassStarts(trace, tree, thread);
  std::vector<int64_t> ends;
  std::vector<double> after;  // ns from the update to the end of its step
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto next = std::ranges::lower_bound(starts, updates[i].end_ns);
    const bool is_last = i + 1 == updates.size();
    int64_t end = updates[i].end_ns;
    if (next != starts.end() && (is_last || *next < updates[i + 1].end_ns)) {
      end = *next;
    } else if (is_last) {
      // The recording ends here, perhaps before the step does.
      end = std::min(end + static_cast<int64_t>(Median(after)),
                     ThreadSpan(trace, thread).end_ns);
    }
    ends.push_back(std::max(end, updates[i].end_ns));
    after.push_back(static_cast<double>(end - updates[i].end_ns));
  }
  InferredSteps steps;
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] <= ends[i - 1]) continue;
    steps.windows.push_back(
        {.host = {ends[i - 1], ends[i]},
         .number = static_cast<int64_t>(steps.windows.size())});
  }
  steps.step_source = "the updates of the optimizer";
  return steps;
}

}  // namespace

InferredSteps InferSteps(const Trace& trace, const OpTree& tree, RowId thread) {
  InferredSteps steps = BetweenUpdates(trace, tree, thread);
  if (steps.windows.empty()) steps = BetweenRanges(trace, thread);
  if (steps.windows.empty()) {
    RepeatedWork repeated = FindRepeatedWork(trace, tree, thread);
    steps = {std::move(repeated.windows), std::move(repeated.first)};
  }
  if (steps.windows.empty()) steps.step_source.clear();
  return steps;
}

}  // namespace stepscope
