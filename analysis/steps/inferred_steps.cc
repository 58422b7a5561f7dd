#include "steps/inferred_steps.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

namespace stepscope {
namespace {

// Fewer turns of a range show no repeat.
constexpr size_t kFewestTurns = 3;
// Of what the thread does, what the turns must cover.
constexpr double kMostOfRecording = 0.5;
// A last turn whose range is shorter than this share of the others lacks what
// follows the range.
constexpr double kWholeTurn = 0.8;
// Of the turns, how many must show that a step begins anew.
constexpr double kMostTurns = 0.9;

// "Iteration 17" and "iteration 18" are turns of one range.
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

bool NamesStep(std::string_view name) {
  static constexpr std::array<std::string_view, 11> kWords = {
      "step",    "iter",   "batch",   "request", "execute_", "generat",
      "predict", "decode", "prefill", "frame",   "episode"};
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return name.find(word) != std::string_view::npos;
  });
}

// Times at which something of a new step happens, sorted.
std::vector<int64_t> FreshStarts(const Trace& trace, RowId thread) {
  std::vector<int64_t> times;
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kLoader && range.thread == thread) {
      times.push_back(range.begin_ns);
    }
  }
  for (const Copy& copy : trace.copies()) {
    const bool from_host = copy.source == MemoryKind::kPageable ||
                           copy.source == MemoryKind::kPinned ||
                           copy.source == MemoryKind::kHost;
    if (!from_host || copy.call == kNone) continue;
    times.push_back(trace.runtime_calls()[copy.call].begin_ns);
  }
  for (const Op& op : trace.ops()) {
    if (op.kind == OpKind::kBackward) times.push_back(op.begin_ns);
  }
  std::ranges::sort(times);
  return times;
}

// What the thread's ops span.
Span Activity(const Trace& trace, RowId thread) {
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

struct Turns {
  std::string name;
  RangeKind kind = RangeKind::kUser;
  std::vector<Span> spans;  // without overlap, in time order
};

// Ranges of one name, and calls of one module; those inside an earlier one of
// the name are left out.
std::vector<Turns> RepeatedRanges(const Trace& trace, RowId thread) {
  std::map<std::pair<RangeKind, std::string>, Turns> by_name;
  const auto add = [&](RangeKind kind, std::string name, Span span) {
    Turns& turns = by_name[{kind, std::move(name)}];
    turns.kind = kind;
    if (turns.spans.empty() || span.begin_ns >= turns.spans.back().end_ns) {
      turns.spans.push_back(span);
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
    // Layers are modules whose names differ by a number only.
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
  std::vector<Turns> repeated;
  for (auto& [key, turns] : by_name) {
    if (turns.spans.size() < kFewestTurns) continue;
    turns.name = key.second;
    repeated.push_back(std::move(turns));
  }
  return repeated;
}

// Inside the turns of another repeated range.
bool IsNested(const Turns& turns, const std::vector<Turns>& all) {
  return std::ranges::any_of(all, [&](const Turns& outer) {
    if (&outer == &turns || outer.spans.size() > turns.spans.size()) {
      return false;
    }
    const Span& one = turns.spans[turns.spans.size() / 2];
    auto it = std::ranges::upper_bound(outer.spans, one.begin_ns, {},
                                       &Span::begin_ns);
    if (it == outer.spans.begin()) return false;
    --it;
    return it->end_ns >= one.end_ns && it->length() > one.length();
  });
}

std::vector<StepWindow> WindowsOf(const Turns& turns) {
  std::vector<double> lengths;
  std::vector<StepWindow> windows;
  const auto add = [&](Span host) {
    windows.push_back(
        {.host = host, .number = static_cast<int64_t>(windows.size())});
  };
  for (size_t i = 0; i + 1 < turns.spans.size(); ++i) {
    const Span host{turns.spans[i].begin_ns, turns.spans[i + 1].begin_ns};
    lengths.push_back(static_cast<double>(host.length()));
    add(host);
  }
  const Span& last = turns.spans.back();
  if (last.length() >= kWholeTurn * Median(lengths)) add(last);
  return windows;
}

bool BeginsAnew(const Turns& turns, const std::vector<StepWindow>& windows,
                const std::vector<int64_t>& starts) {
  if (turns.kind == RangeKind::kUser && NamesStep(WithoutNumbers(turns.name))) {
    return true;
  }
  size_t fresh = 0;
  for (const StepWindow& window : windows) {
    const auto it = std::ranges::lower_bound(starts, window.host.begin_ns);
    fresh += it != starts.end() && *it < window.host.end_ns;
  }
  return fresh >= kMostTurns * windows.size();
}

InferredSteps BetweenRanges(const Trace& trace, RowId thread) {
  const std::vector<Turns> repeated = RepeatedRanges(trace, thread);
  if (repeated.empty()) return {};
  const std::vector<int64_t> starts = FreshStarts(trace, thread);
  const double activity = Activity(trace, thread).length();
  InferredSteps best;
  for (const Turns& turns : repeated) {
    if (IsNested(turns, repeated)) continue;
    std::vector<StepWindow> windows = WindowsOf(turns);
    const double covered =
        windows.back().host.end_ns - windows.front().host.begin_ns;
    if (covered < kMostOfRecording * activity ||
        !BeginsAnew(turns, windows, starts)) {
      continue;
    }
    // Of several the one with the fewest turns: the others are its parts.
    if (!best.windows.empty() && best.windows.size() <= windows.size()) {
      continue;
    }
    best.windows = std::move(windows);
    best.step_source = "the range \"" + turns.name + "\"";
  }
  return best;
}

// Updates of several optimizers that follow each other without a backward pass
// between them are one.
InferredSteps BetweenUpdates(const Trace& trace, RowId thread) {
  std::vector<Span> updates;
  for (const Range& range : trace.ranges()) {
    if (range.kind == RangeKind::kOptimizer && range.thread == thread &&
        trace.name(range.name).starts_with("Optimizer.step")) {
      updates.push_back({range.begin_ns, range.end_ns});
    }
  }
  std::ranges::sort(updates, {}, &Span::end_ns);
  std::vector<int64_t> backward;
  for (const Op& op : trace.ops()) {
    if (op.kind == OpKind::kBackward) backward.push_back(op.begin_ns);
  }
  const auto backward_between = [&](int64_t from, int64_t to) {
    const auto it = std::ranges::lower_bound(backward, from);
    return it != backward.end() && *it < to;
  };
  std::vector<int64_t> ends;
  for (const Span& update : updates) {
    if (!ends.empty() && !backward.empty() &&
        !backward_between(ends.back(), update.begin_ns)) {
      ends.back() = update.end_ns;
    } else {
      ends.push_back(update.end_ns);
    }
  }
  InferredSteps steps;
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] <= ends[i - 1]) continue;
    steps.windows.push_back(
        {.host = {ends[i - 1], ends[i]},
         .number = static_cast<int64_t>(steps.windows.size())});
  }
  steps.step_source = "the ends of Optimizer.step";
  return steps;
}

}  // namespace

InferredSteps InferSteps(const Trace& trace, RowId thread) {
  InferredSteps steps = BetweenUpdates(trace, thread);
  if (steps.windows.empty()) steps = BetweenRanges(trace, thread);
  if (steps.windows.empty()) steps.step_source.clear();
  return steps;
}

}  // namespace stepscope
