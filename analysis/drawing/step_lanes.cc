#include "drawing/step_lanes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "drawing/drawn_names.h"
#include "ops/by_name.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// A drawing is at most this many blocks wide. Shorter blocks would be
// invisible.
constexpr int64_t kColumns = 700;
constexpr size_t kBlocks = 160;   // per lane
constexpr size_t kHostLanes = 2;  // besides the training thread
constexpr size_t kDeviceLanes = 3;

// Something that takes time in a lane, before it is simplified.
struct Piece {
  Span span;
  Cause cause = Cause::kUnknown;
  uint32_t name = 0;
};

// Joins neighbours of the same cause that are closer than `grain_ns`, and drops
// joined blocks that are shorter than that. A joined block has the name of its
// longest piece.
std::vector<Piece> Joined(const std::vector<Piece>& pieces, int64_t grain_ns) {
  std::vector<Piece> joined;
  int64_t longest_ns = 0;
  for (const Piece& piece : pieces) {
    const bool joins =
        !joined.empty() && joined.back().cause == piece.cause &&
        piece.span.begin_ns - joined.back().span.end_ns < grain_ns;
    if (!joins) {
      // Drops the last block if nothing joined it, because alone it is too
      // short to be visible.
      if (!joined.empty() && joined.back().span.length() < grain_ns) {
        joined.pop_back();
      }
      joined.push_back(piece);
      longest_ns = piece.span.length();
      continue;
    }
    Piece& last = joined.back();
    last.span.end_ns = std::max(last.span.end_ns, piece.span.end_ns);
    if (piece.span.length() > longest_ns) {
      longest_ns = piece.span.length();
      last.name = piece.name;
    }
  }
  return joined;
}

// Returns the pieces as blocks of a lane, clipped to `window` and simplified.
// REQUIRES: `pieces` are in time order and overlap `window`.
std::vector<PageBlock> Blocks(std::vector<Piece> pieces, const Span& window) {
  for (Piece& piece : pieces) {
    piece.span.begin_ns = std::max(piece.span.begin_ns, window.begin_ns);
    piece.span.end_ns = std::min(piece.span.end_ns, window.end_ns);
  }
  std::erase_if(pieces,
                [](const Piece& piece) { return piece.span.length() <= 0; });
  // A lane with too many blocks is drawn coarser, so that a page stays small.
  int64_t grain_ns = std::max<int64_t>(window.length() / kColumns, 1);
  std::vector<Piece> joined = Joined(pieces, grain_ns);
  while (joined.size() > kBlocks) {
    grain_ns *= 2;
    joined = Joined(pieces, grain_ns);
  }
  std::vector<PageBlock> blocks;
  blocks.reserve(joined.size());
  for (const Piece& piece : joined) {
    blocks.push_back(
        {.begin_us = (piece.span.begin_ns - window.begin_ns) * 1e-3,
         .length_us = piece.span.length() * 1e-3,
         .cause = CauseKey(piece.cause),
         .name = piece.name});
  }
  return blocks;
}

Cause CauseOfKey(const std::string& key) {
  for (size_t i = 0; i < kCauses; ++i) {
    if (key == CauseKey(static_cast<Cause>(i))) return static_cast<Cause>(i);
  }
  return Cause::kUnknown;
}

// Draws one window of a Trace.
class StepDrawer {
 public:
  StepDrawer(const AnalysisContext& context, const Report& report,
             DrawnNames& names)
      : context_(context),
        trace_(context.trace),
        report_(report),
        names_(names) {}

  std::vector<PageLane> Draw(const Span& window) {
    window_ = window;
    lanes_.clear();
    Path();
    HostThread(context_.steps.thread, "training thread");
    OtherThreads();
    Streams();
    return std::move(lanes_);
  }

 private:
  bool Touches(int64_t begin_ns, int64_t end_ns) const {
    return begin_ns < window_.end_ns && end_ns > window_.begin_ns;
  }
  void Add(std::string name, std::vector<Piece> pieces) {
    std::vector<PageBlock> blocks = Blocks(std::move(pieces), window_);
    if (!blocks.empty()) {
      lanes_.push_back({.name = std::move(name), .blocks = std::move(blocks)});
    }
  }
  void Path();
  void HostThread(RowId thread, std::string name);
  void OtherThreads();
  void Streams();

  const AnalysisContext& context_;
  const Trace& trace_;
  const Report& report_;
  DrawnNames& names_;
  Span window_;
  std::vector<PageLane> lanes_;
};

void StepDrawer::Path() {
  std::vector<Piece> pieces;
  for (const PathSlice& slice : report_.path_slices) {
    if (!Touches(slice.begin_ns, slice.end_ns)) continue;
    pieces.push_back({{slice.begin_ns, slice.end_ns},
                      CauseOfKey(slice.category),
                      names_.Of(slice.name)});
  }
  Add("critical path", std::move(pieces));
}

// With a GPU, ops that "compute" on the host are drawn as launching, and waits
// are drawn over them.
void StepDrawer::HostThread(RowId thread, std::string name) {
  if (thread == kNone) return;
  std::vector<Segment> segments =
      HostTimeline(trace_, context_.tree, thread, window_);
  // Copies come last, so that they cover other waits.
  for (const auto& [kind, cause] : {std::pair{false, Cause::kSync},
                                    std::pair{true, Cause::kBlockingCopy}}) {
    std::vector<Claim> claims;
    for (const HostWait& wait : context_.waits.all) {
      const bool copies = wait.copy_call != kNone;
      if (wait.thread == thread && copies == kind &&
          Touches(wait.span.begin_ns, wait.span.end_ns)) {
        claims.push_back({.span = wait.span});
      }
    }
    std::vector<Segment> spare;
    Overlay(segments, Disjoint(std::move(claims)), cause, spare);
  }
  std::vector<Piece> pieces;
  for (const Segment& segment : segments) {
    const bool launches = context_.has_gpu && segment.cause == Cause::kCompute;
    const NameId label = segment.op != kNone ? trace_.ops()[segment.op].name
                         : segment.range != kNone
                             ? trace_.ranges()[segment.range].name
                             : 0;
    pieces.push_back({{segment.begin_ns, segment.end_ns},
                      launches ? Cause::kDispatch : segment.cause,
                      names_.Of(label)});
  }
  Add(std::move(name), std::move(pieces));
}

// The other threads that run operators, the busiest first.
void StepDrawer::OtherThreads() {
  std::map<RowId, std::vector<Piece>> by_thread;
  std::map<RowId, int64_t> busy_ns;
  for (const Op& op : trace_.ops()) {
    // Draws only outermost operators, because the inner ones would cover them.
    if (op.parent != kNone || op.thread == context_.steps.thread ||
        op.thread == kNone || !Touches(op.begin_ns, op.end_ns)) {
      continue;
    }
    by_thread[op.thread].push_back(
        {{op.begin_ns, op.end_ns},
         context_.has_gpu ? Cause::kDispatch : Cause::kCompute,
         names_.Of(op.name)});
    busy_ns[op.thread] += op.end_ns - op.begin_ns;
  }
  std::vector<std::pair<int64_t, RowId>> order;
  order.reserve(busy_ns.size());
  for (const auto& [thread, ns] : busy_ns) order.push_back({-ns, thread});
  std::ranges::sort(order);
  if (order.size() > kHostLanes) order.resize(kHostLanes);
  const std::vector<RowId> autograd =
      AutogradThreads(context_.tree, context_.steps.thread);
  for (const auto& [ns, thread] : order) {
    const bool backward = std::ranges::count(autograd, thread) > 0;
    Add(backward ? "backward thread"
                 : "thread " + std::to_string(trace_.threads()[thread].tid),
        std::move(by_thread[thread]));
  }
}

void StepDrawer::Streams() {
  using StreamKey = std::tuple<int32_t, int64_t>;  // device, stream
  std::map<StreamKey, std::vector<Piece>> by_stream;
  std::map<StreamKey, int64_t> busy_ns;
  const auto add = [&](const DeviceWork& work, Cause cause, uint32_t name) {
    by_stream[{work.device, work.stream}].push_back(
        {{work.begin_ns, work.end_ns}, cause, name});
    busy_ns[{work.device, work.stream}] += work.end_ns - work.begin_ns;
  };
  ByName is_collective(trace_, &IsCollectiveKernel);
  for (const Kernel& kernel : trace_.kernels()) {
    if (!Touches(kernel.begin_ns, kernel.end_ns)) continue;
    add(kernel,
        is_collective(kernel.name) ? Cause::kCommunication : Cause::kCompute,
        names_.Of(kernel.name));
  }
  for (const Copy& copy : trace_.copies()) {
    if (!Touches(copy.begin_ns, copy.end_ns)) continue;
    add(copy, Cause::kCopy,
        copy.name == 0 ? names_.Of(std::string("copy")) : names_.Of(copy.name));
  }
  for (const Memset& set : trace_.memsets()) {
    if (!Touches(set.begin_ns, set.end_ns)) continue;
    add(set, Cause::kCopy, names_.Of(std::string("memset")));
  }
  std::vector<std::pair<int64_t, StreamKey>> order;
  order.reserve(busy_ns.size());
  for (const auto& [stream, ns] : busy_ns) order.push_back({-ns, stream});
  std::ranges::sort(order);
  if (order.size() > kDeviceLanes) order.resize(kDeviceLanes);
  for (const auto& [ns, stream] : order) {
    std::vector<Piece>& pieces = by_stream[stream];
    // Needs sorting, because pieces were added table by table: kernels, copies,
    // memsets.
    std::ranges::sort(pieces, {},
                      [](const Piece& piece) { return piece.span.begin_ns; });
    Add("GPU " + std::to_string(std::get<0>(stream)) + " stream " +
            std::to_string(std::get<1>(stream)),
        std::move(pieces));
  }
}

// The span to draw for a step: what both the host and the device do for it.
Span WindowOf(const StepWindow& step) {
  return {std::min(step.host.begin_ns, step.tiled.begin_ns),
          std::max(step.host.end_ns, step.tiled.end_ns)};
}

// The steady step whose length is nearest to the mean; kNoStep without steps.
size_t TypicalStep(const AnalysisContext& context) {
  size_t typical = kNoStep;
  double least = 0;
  for (size_t i : context.steps.steady) {
    const double off =
        std::abs(static_cast<double>(context.steps.windows[i].tiled.length()) -
                 context.step_ns());
    if (typical != kNoStep && off >= least) continue;
    typical = i;
    least = off;
  }
  return typical;
}

// The span from the first operator or activity to the end of the last one.
Span WholeWindow(const Trace& trace) {
  Span whole{INT64_MAX, INT64_MIN};
  const auto see = [&](const auto& rows) {
    for (const auto& row : rows) {
      whole.begin_ns = std::min(whole.begin_ns, row.begin_ns);
      whole.end_ns = std::max(whole.end_ns, row.end_ns);
    }
  };
  see(trace.ops());
  see(trace.kernels());
  see(trace.copies());
  return whole.begin_ns < whole.end_ns ? whole : Span{};
}

// Drops the names of blocks that were too short to be drawn.
void KeepUsedNames(PageDetails& details) {
  std::vector<std::string> used = {""};
  std::map<uint32_t, uint32_t> moved = {{0, 0}};
  for (PageStep& step : details.steps) {
    for (PageLane& lane : step.lanes) {
      for (PageBlock& block : lane.blocks) {
        const auto [at, is_new] =
            moved.try_emplace(block.name, static_cast<uint32_t>(used.size()));
        if (is_new) used.push_back(std::move(details.names[block.name]));
        block.name = at->second;
      }
    }
  }
  details.names = std::move(used);
}

// The index of the step that shows `example`; steps.windows.size() if none
// does. The host's work for a step may start before the step's tiled span.
size_t StepOfExample(const Steps& steps, const Example& example) {
  const auto named =
      std::ranges::find(steps.windows, example.step, &StepWindow::number);
  if (example.step >= 0 && named != steps.windows.end()) {
    const Span window = WindowOf(*named);
    if (example.begin_ns < window.end_ns && example.end_ns > window.begin_ns) {
      return static_cast<size_t>(named - steps.windows.begin());
    }
  }
  const size_t index = WindowAt(steps, &StepWindow::tiled, example.begin_ns);
  return index < steps.windows.size()
             ? index
             : WindowAt(steps, &StepWindow::host, example.begin_ns);
}

// Draws the steps of the findings' examples: first the best example of each
// finding, then the others. `draw` draws a step and returns its position among
// the drawn steps, or kDrawnSteps if there is no room.
template <typename Draw>
void DrawExamples(const Steps& steps, const Report& report, const Draw& draw,
                  PageDetails& details) {
  for (size_t nth = 0; nth < 3; ++nth) {
    for (const Finding& finding : report.findings) {
      if (IsNote(finding) || nth >= finding.examples.size()) continue;
      const Example& example = finding.examples[nth];
      const size_t index = StepOfExample(steps, example);
      if (index == steps.windows.size()) continue;
      const size_t place = draw(index);
      if (place == kDrawnSteps) continue;
      details.examples.push_back({.begin_ns = example.begin_ns,
                                  .end_ns = example.end_ns,
                                  .step = place});
    }
  }
}

}  // namespace

void DrawSteps(const AnalysisContext& context, const Report& report,
               PageDetails& details) {
  DrawnNames names(context.trace, details.names);
  StepDrawer drawer(context, report, names);
  const Steps& steps = context.steps;
  // The whole recording is drawn as one step without a number.
  if (steps.empty() || steps.is_recording) {
    const Span whole = WholeWindow(context.trace);
    if (whole.length() <= 0) return;
    details.steps.push_back({.begin_ns = whole.begin_ns,
                             .end_ns = whole.end_ns,
                             .lanes = drawer.Draw(whole)});
    KeepUsedNames(details);
    return;
  }
  std::vector<size_t> drawn;
  const auto draw = [&](size_t index) {
    const auto at = std::ranges::find(drawn, index);
    const size_t place = static_cast<size_t>(at - drawn.begin());
    if (at != drawn.end() || drawn.size() == kDrawnSteps) return place;
    drawn.push_back(index);
    const Span window = WindowOf(steps.windows[index]);
    details.steps.push_back({.number = steps.windows[index].number,
                             .begin_ns = window.begin_ns,
                             .end_ns = window.end_ns,
                             .lanes = drawer.Draw(window)});
    return place;
  };
  if (const size_t typical = TypicalStep(context); typical != kNoStep) {
    draw(typical);
  }
  DrawExamples(steps, report, draw, details);
  KeepUsedNames(details);
}

}  // namespace stepscope
