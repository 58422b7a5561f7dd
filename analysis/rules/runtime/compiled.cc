// What does torch.compile cost inside the steps, and does it compile the model
// in one piece? Source: PyTorch documentation, "torch.compile troubleshooting":
// recompilation and graph breaks. Dynamo opens a range "Torch-Compiled Region:
// FRAME/VARIANT" around each call of compiled code. A function broken in two
// has two frames.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "ops/op_traits.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"
#include "words/quantities.h"

namespace stepscope {
namespace compiled_rules {
namespace {

constexpr std::string_view kRegion = "Torch-Compiled Region: ";
constexpr size_t kShown = 3;

// Returns when the program's threads compile, as a disjoint list.
std::vector<Span> CompileSpans(const AnalysisContext& m) {
  std::vector<bool> wanted(m.trace.name_count());
  for (NameId name = 0; name < m.trace.name_count(); ++name) {
    wanted[name] = IsCompiling(m.trace.name(name));
  }
  // Use only threads whose compiling holds up the step: the one that runs the
  // model, and those that run backward.
  std::vector<bool> threads(m.trace.threads().size());
  for (RowId row : AutogradThreads(m.tree, m.steps.thread)) threads[row] = true;
  if (m.steps.thread != kNone) threads[m.steps.thread] = true;
  std::vector<Span> spans;
  const auto add = [&](const auto& rows) {
    for (const auto& row : rows) {
      if (!wanted[row.name] || row.thread == kNone || !threads[row.thread]) {
        continue;
      }
      spans.push_back({row.begin_ns, row.end_ns});
    }
  };
  add(m.trace.ops());
  add(m.trace.ranges());
  add(m.trace.python_frames());
  return Merge(std::move(spans));
}

// Returns "1/0" for "Torch-Compiled Region: 1/0"; empty for other names.
std::string_view RegionOf(std::string_view name) {
  if (!name.starts_with(kRegion)) return "";
  name.remove_prefix(kRegion.size());
  return name;
}
std::string FrameOf(std::string_view region) {
  return std::string(region.substr(0, region.find('/')));
}

// Returns the frame with most variants of compiled code, in words: " Frame 1
// has 8 variants in this recording."; empty if each frame has one variant.
std::string MostVariants(const AnalysisContext& m) {
  std::map<std::string, std::set<std::string_view>> variants;
  for (NameId name = 0; name < m.trace.name_count(); ++name) {
    const std::string_view region = RegionOf(m.trace.name(name));
    if (!region.empty()) variants[FrameOf(region)].insert(region);
  }
  if (variants.empty()) return "";
  const auto most = std::ranges::max_element(
      variants, {}, [](const auto& entry) { return entry.second.size(); });
  if (most->second.size() < 2) return "";
  return " Frame " + most->first + " runs in " +
         std::to_string(most->second.size()) + " variants.";
}

Verdict CheckRecompiling(const AnalysisContext& m) {
  const std::vector<Span> spans = CompileSpans(m);
  if (spans.empty()) return Clean();
  const std::vector<StepWindow>& windows = m.steps.windows;
  // Skip the first steps, which compile the program.
  size_t first = 0;
  while (first < windows.size() && LengthIn(spans, windows[first].host) > 0) {
    ++first;
  }
  Finding finding;
  double ns = 0, length = 0;
  int64_t steps = 0, times = 0;
  for (size_t i = first; i < windows.size(); ++i) {
    length += static_cast<double>(windows[i].tiled.length());
    const std::vector<Span> inside = Clip(spans, windows[i].host);
    if (inside.empty()) continue;
    ++steps;
    times += static_cast<int64_t>(inside.size());
    ns += static_cast<double>(Length(inside));
    if (finding.examples.size() < kShown) {
      finding.examples.push_back({windows[i].number, inside[0].begin_ns,
                                  inside[0].end_ns, "compiling"});
    }
  }
  if (steps == 0) return Clean();
  // Take means over all these steps: a step that compiles is slow, and slow
  // steps are not steady.
  const auto count = static_cast<double>(windows.size() - first);
  ns /= count;
  length /= count;
  if (ns < 0.01 * length) return Clean();
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "torch.compile compiled again, " + Count(times, "time") + " in " +
      std::to_string(steps) + " of the " +
      Count(static_cast<int64_t>(windows.size() - first), "step") +
      " after the first ones. This takes " + Milliseconds(ns * 1e-6) +
      " per step on average (" + Percent(ns / length) + ")." + MostVariants(m);
  finding.assumption = "at best: later steps run code that is compiled already";
  finding.fix_cpp =
      "pad inputs to a few sizes, or export the model with dynamic dimensions";
  finding.fix_python =
      "TORCH_LOGS=recompiles names the guard that failed; for varying sizes, "
      "use torch._dynamo.mark_dynamic(x, 0) or torch.compile(dynamic=True), or "
      "pad to a few sizes; pass varying Python numbers as tensors";
  finding.wrong_if =
      "the recompilations end after a few more steps (a longer recording would "
      "show it)";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = ns,
                    .baseline_ms = length * 1e-6,
                    .regardless = true});
}

// A call of compiled code on the training thread, not inside another one.
struct Region {
  Span span;
  std::string frame;
};
std::vector<Region> RegionsIn(const AnalysisContext& m, Span step) {
  std::vector<Region> regions;
  const auto add = [&](const auto& rows) {
    auto it = std::ranges::lower_bound(
        rows, step.begin_ns, {}, [](const auto& r) { return r.begin_ns; });
    for (; it != rows.end() && it->begin_ns < step.end_ns; ++it) {
      if (it->thread != m.steps.thread) continue;
      const std::string_view region = RegionOf(m.trace.name(it->name));
      if (region.empty()) continue;
      regions.push_back({{it->begin_ns, it->end_ns}, FrameOf(region)});
    }
  };
  add(m.trace.ops());
  add(m.trace.ranges());
  std::ranges::stable_sort(regions, {},
                           [](const Region& r) { return r.span.begin_ns; });
  int64_t end = INT64_MIN;
  std::erase_if(regions, [&](const Region& region) {
    if (region.span.begin_ns < end) return true;
    end = region.span.end_ns;
    return false;
  });
  return regions;
}

// What runs between two frames of compiled code in the steady steps.
struct Breaks {
  std::vector<Span> spans;
  std::map<std::string, int64_t> ops;  // outermost ops, by name
  std::set<std::string> frames;
  int64_t regions = 0;
  size_t steps = 0;  // steps with such breaks
};

void AddBreaks(const AnalysisContext& m, Span step, Breaks& breaks) {
  const std::vector<Region> regions = RegionsIn(m, step);
  breaks.regions += static_cast<int64_t>(regions.size());
  bool any = false;
  for (size_t i = 0; i + 1 < regions.size(); ++i) {
    // Layers compiled one by one are calls of the same frame, with eager code
    // between them on purpose.
    if (regions[i].frame == regions[i + 1].frame) continue;
    const Span between{regions[i].span.end_ns, regions[i + 1].span.begin_ns};
    // A backward pass in between shows another pass, or another model.
    bool backward = false;
    auto row = std::ranges::lower_bound(m.trace.ops(), between.begin_ns, {},
                                        &Op::begin_ns);
    for (; row != m.trace.ops().end() && row->begin_ns < between.end_ns; ++row)
      backward |= row->kind == OpKind::kBackward;
    if (backward) continue;
    int64_t ops = 0;
    for (RowId row : m.tree.of_thread(m.steps.thread, between)) {
      const Op& op = m.trace.ops()[row];
      const std::string name(m.trace.name(op.name));
      if (op.parent != kNone || !name.starts_with("aten::")) continue;
      ++breaks.ops[name];
      ++ops;
    }
    if (ops == 0) continue;
    any = true;
    breaks.spans.push_back(between);
    breaks.frames.insert({regions[i].frame, regions[i + 1].frame});
  }
  breaks.steps += any;
}

// Returns the cost of the breaks per step. On a run with a GPU, this is the
// idle time of the device in them.
double CostOf(const AnalysisContext& m, const Breaks& breaks) {
  std::vector<Span> spans = Merge(breaks.spans);
  if (m.has_gpu) {
    std::vector<Span> idle;
    for (const Gap& gap : m.waits.idle) {
      if (gap.host_late) idle.push_back(gap.idle);
    }
    spans = Intersect(spans, Merge(std::move(idle)));
  }
  return static_cast<double>(Length(spans)) / m.steps.steady.size();
}

Verdict CheckGraphBreaks(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  Breaks breaks;
  for (size_t i : m.steps.steady) AddBreaks(m, m.steps.windows[i].host, breaks);
  const auto steps = static_cast<double>(m.steps.steady.size());
  const double ns = CostOf(m, breaks);
  if (!AreMostSteps(m.steps, breaks.steps) ||
      ns * 1e-6 < MinReportableGainMs(m)) {
    return Clean();
  }
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, count] : breaks.ops) order.push_back({-count, name});
  std::ranges::sort(order);
  std::string ops;
  for (size_t i = 0; i < std::min(kShown, order.size()); ++i) {
    ops += (i > 0 ? ", " : "") + order[i].second;
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "The compiled code is cut into " +
      Count(static_cast<int64_t>(breaks.frames.size()), "frame") + ", " +
      MeanCount(static_cast<double>(breaks.regions) / steps, "call") +
      " per step, with eager ops between them (" + ops + "). " +
      (m.has_gpu ? "The GPU is idle in these gaps for " : "These gaps take ") +
      Milliseconds(ns * 1e-6) + " per step.";
  finding.where = ops;
  for (size_t i = 0; i < std::min(kShown, breaks.spans.size()); ++i) {
    finding.examples.push_back(
        {-1, breaks.spans[i].begin_ns, breaks.spans[i].end_ns, "eager code"});
  }
  finding.assumption = "at best: nothing runs between the compiled parts";
  finding.fix_cpp = "export the model in one piece (torch.export)";
  finding.fix_python =
      "TORCH_LOGS=graph_breaks names the lines; move .item(), print and data-"
      "dependent branches out of the model, then keep it whole with "
      "torch.compile(fullgraph=True)";
  finding.wrong_if =
      "the parts were compiled one by one on purpose, with this code between "
      "them";
  return FireBound(std::move(finding), ns);
}

constexpr Rule kRules[] = {
    {.id = "recompiling",
     .question = "Does torch.compile compile again in later steps?",
     .needs = {},
     .causes = {Cause::kDispatch, Cause::kHostCode},
     .check = &CheckRecompiling,
     .reference = "PyTorch documentation, torch.compile troubleshooting: "
                  "recompilation",
     .detect =
         "after the first steps, Dynamo's ranges of compiling take 1 % of "
         "the steps or more; the time is exact",
     .avoid = "only the first recorded steps compile, one after the other",
     .fix_cpp = "pad inputs to a few sizes, or make dimensions dynamic",
     .fix_python = "mark_dynamic, dynamic=True, or pad to a few sizes"},
    {.id = "graph-breaks",
     .question =
         "Is compiled code cut into pieces with eager ops between them?",
     .needs = {Kind::kOp},
     .causes = {Cause::kDispatch, Cause::kHostCode},
     .check = &CheckGraphBreaks,
     .reference = "PyTorch documentation, torch.compile troubleshooting: graph "
                  "breaks",
     .detect = "in two thirds of the steady steps, eager ops run between "
               "compiled regions of different frames, and 1 % of the step is "
               "lost there (on a GPU: as its idle time)",
     .avoid = "the same frame runs several times (layers compiled one by one), "
              "or a backward pass lies between the regions",
     .fix_cpp = "export the model in one piece",
     .fix_python =
         "TORCH_LOGS=graph_breaks, then torch.compile(fullgraph=True)"}};

}  // namespace
}  // namespace compiled_rules

extern const std::span<const Rule> kCompiled = compiled_rules::kRules;

}  // namespace stepscope
