#include "evidence/wait_reads.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "ops/contains.h"
#include "ops/update_span.h"

namespace stepscope {
namespace {

// Printing a tensor reads its elements one by one in a tight loop: at least 20
// reads with pauses below 0.2 ms. Our own choice.
constexpr int kPrintBurst = 20;
constexpr int64_t kPrintPauseNs = 200'000;

std::string_view NameOf(const Trace& trace, RowId op) {
  return op == kNone ? std::string_view() : trace.name(trace.ops()[op].name);
}

// The innermost op with a known purpose decides. item() on its own is a scalar
// read.
ReadKind KindOf(const AnalysisContext& context, const HostWait& wait) {
  ReadKind kind =
      wait.kind == WaitKind::kInOp ? ReadKind::kShape : ReadKind::kCopy;
  for (RowId op = wait.op; op != kNone; op = context.trace.ops()[op].parent) {
    const std::string_view name = NameOf(context.trace, op);
    if (IsAnyOf(name, {"aten::is_nonzero", "aten::equal", "aten::allclose",
                       "aten::__contains__"})) {
      return ReadKind::kBranch;
    }
    if (IsAnyOf(name,
                {"aten::nonzero", "aten::masked_select", "aten::unique",
                 "aten::_unique2", "aten::unique_consecutive", "aten::index",
                 "aten::index_put_", "aten::_index_put_impl_",
                 "aten::repeat_interleave", "aten::bincount"})) {
      return ReadKind::kShape;
    }
    if (IsAnyOf(name, {"aten::item", "aten::_local_scalar_dense"})) {
      kind = ReadKind::kScalar;
    }
  }
  return kind;
}

// True if the program computes something between two waits. Printing only
// selects the next element.
bool ComputesBetween(const AnalysisContext& context, const HostWait& before,
                     const HostWait& after) {
  const Span between{before.span.end_ns, after.span.begin_ns};
  return std::ranges::any_of(
      context.tree.of_thread(after.thread, between), [&](RowId row) {
        return context.tree.computes(row) &&
               !context.tree.traits(row).bookkeeping &&
               !IsAnyOf(NameOf(context.trace, row),
                        {"aten::item", "aten::_local_scalar_dense"});
      });
}

// Marks runs of many reads close together as printing.
void MarkPrinting(const AnalysisContext& context,
                  std::vector<ReadKind>& kinds) {
  const std::vector<HostWait>& waits = context.waits.all;
  for (size_t i = 0; i < waits.size();) {
    size_t end = i + 1;
    const auto reads = [&](size_t k) {
      return kinds[k] == ReadKind::kScalar || kinds[k] == ReadKind::kBranch;
    };
    while (end < waits.size() && reads(i) && reads(end) &&
           waits[end].span.begin_ns - waits[end - 1].span.end_ns <
               kPrintPauseNs &&
           !ComputesBetween(context, waits[end - 1], waits[end])) {
      ++end;
    }
    if (end - i >= kPrintBurst) {
      std::fill(kinds.begin() + static_cast<std::ptrdiff_t>(i),
                kinds.begin() + static_cast<std::ptrdiff_t>(end),
                ReadKind::kPrint);
    }
    i = end;
  }
}

// Finds the waits caused by clipping or scaling gradients: reads of a scalar
// between the backward pass and the optimizer, after a norm of the gradients or
// a check of them for infinities.
class ClipWaits {
 public:
  // kClipOfScaled: clipping, or the scaler's check if it is the last read
  // before the optimizer.
  enum class Cause : uint8_t { kNone, kClip, kScaler, kClipOfScaled };
  struct Read {
    Cause cause = Cause::kNone;
    int64_t since = 0;  // end of the backward pass before it
  };

  explicit ClipWaits(const AnalysisContext& context)
      : context_(context), norms_(0) {
    for (RowId row = 0; row < context.trace.ops().size(); ++row) {
      const Op& op = context.trace.ops()[row];
      if (op.kind == OpKind::kBackward) {
        // Nodes of several threads overlap. Only the latest end matters.
        const int64_t end = std::max(
            op.end_ns, backward_.empty() ? op.end_ns : backward_.back().end_ns);
        backward_.push_back({op.begin_ns, end});
      }
    }
    for (const Range& range : context.trace.ranges()) {
      if (range.kind == RangeKind::kOptimizer &&
          Contains(context.trace.name(range.name), ".step")) {
        optimizers_.push_back(UpdateSpanOf(context.trace, range).begin_ns);
      }
    }
    std::ranges::sort(optimizers_);
  }

  // Returns whether the wait is due to clipping or the scaler, or neither. Adds
  // the norm ops before the wait to norms().
  Read Of(const HostWait& wait) {
    if (wait.kind != WaitKind::kToHost || wait.op == kNone ||
        !IsAnyOf(
            NameOf(context_.trace, wait.op),
            {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"})) {
      return {};
    }
    const auto after = std::ranges::upper_bound(backward_, wait.span.begin_ns,
                                                {}, &Span::begin_ns);
    if (after == backward_.begin()) return {};
    const int64_t since = std::prev(after)->end_ns;
    const auto step = std::ranges::upper_bound(optimizers_, since);
    if (step != optimizers_.end() && *step < wait.span.begin_ns) {
      return {};  // after the update: the program reads a metric
    }
    return {CauseSince(wait, since), since};
  }
  int64_t norms() const { return norms_; }

 private:
  // Looks back from the wait to the end of the backward pass. If a parameter is
  // updated in between, an unnamed optimizer has already started.
  Cause CauseSince(const HostWait& wait, int64_t since) {
    const auto rows = context_.tree.of_thread(wait.thread);
    auto it = std::ranges::upper_bound(
        rows, wait.span.begin_ns, {},
        [&](RowId row) { return context_.trace.ops()[row].begin_ns; });
    Cause cause = Cause::kNone;
    int64_t norms = 0;
    while (it != rows.begin()) {
      const RowId row = *--it;
      if (context_.trace.ops()[row].begin_ns < since) break;
      const std::string_view name = NameOf(context_.trace, row);
      if (name == "aten::_amp_foreach_non_finite_check_and_unscale_") {
        norms_ += norms;
        return norms > 0 ? Cause::kClipOfScaled : Cause::kScaler;
      }
      if (IsAnyOf(name, {"aten::_foreach_norm", "aten::linalg_vector_norm",
                         "aten::norm"})) {
        if (cause == Cause::kNone) cause = Cause::kClip;
        ++norms;
      } else if (cause == Cause::kNone && UpdatesParameters(name)) {
        return Cause::kNone;
      }
    }
    norms_ += norms;
    return cause;
  }

  static bool UpdatesParameters(std::string_view name) {
    return IsAnyOf(name, {"aten::addcdiv_", "aten::_foreach_addcdiv_",
                          "aten::addcmul_", "aten::_foreach_addcmul_",
                          "aten::lerp_", "aten::_foreach_lerp_", "aten::add_",
                          "aten::_foreach_add_"}) ||
           name.starts_with("aten::_fused_");
  }

  const AnalysisContext& context_;
  std::vector<Span> backward_;  // in time order, with ascending ends
  std::vector<int64_t> optimizers_;
  int64_t norms_;
};

}  // namespace

std::vector<ReadKind> ReadKinds(const AnalysisContext& context) {
  std::vector<ReadKind> kinds;
  for (const HostWait& wait : context.waits.all)
    kinds.push_back(KindOf(context, wait));
  MarkPrinting(context, kinds);
  return kinds;
}

Clipping FindClipping(const AnalysisContext& context) {
  Clipping clipping;
  ClipWaits finder(context);
  std::vector<ClipWaits::Read> reads;
  for (const HostWait& wait : context.waits.all) {
    reads.push_back(finder.Of(wait));
  }
  size_t clips = 0, checks = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    ClipWaits::Cause cause = reads[i].cause;
    clipping.is_clip.push_back(cause != ClipWaits::Cause::kNone);
    if (cause == ClipWaits::Cause::kClipOfScaled) {
      const bool last =
          i + 1 == reads.size() || reads[i + 1].since != reads[i].since;
      cause = last ? ClipWaits::Cause::kScaler : ClipWaits::Cause::kClip;
    }
    checks += cause == ClipWaits::Cause::kScaler;
    clips += cause == ClipWaits::Cause::kClip;
  }
  clipping.scaler = checks > 0 && checks >= clips;
  clipping.norms = finder.norms();
  return clipping;
}

}  // namespace stepscope
