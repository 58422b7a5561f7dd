#include <absl/strings/str_cat.h>
#include <stepscope/collectors.h>
#include <stepscope/range.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "torch_decode.h"
#include "torch_hooks.h"
#include "torch_memory.h"
#include "torch_python.h"
#include "torch_sampling.h"
#include "torch_stacks.h"

namespace stepscope {
namespace {

// The times at which the session announced steps; 0: it did not.
struct StepTicks {
  Ticks sample_begin = 0;
  Ticks sample_end = 0;
  std::vector<Ticks> ends = {};  // of the steps after the sample step
};

// Facts about a window that are not in its slots.
struct WindowFacts {
  double op_cost_ns = -1;
  StepTicks steps = {};
  PythonSamples python = {};
  int64_t unsampled = 0;
  bool has_python = false;
  bool has_memory = false;
  bool lost_memory_hook = false;
};

class TorchRecording : public Recording {
 public:
  TorchRecording(const TorchOptions& options, WindowFacts facts)
      : options_(options), facts_(std::move(facts)) {}

  void AddTo(TraceBuilder& builder, const ClockMap& clock,
             const SlotLog& slots) override {
    // Watched even if no row follows: rules can rely on "nothing happened", but
    // not on "not recorded".
    builder.Watch(Kind::kOp);
    builder.Watch(Kind::kRange);
    builder.Watch(Kind::kCommunication);
    if (options_.record_shapes) builder.Watch(Kind::kOpShapes);
    if (options_.with_stack) builder.Watch(Kind::kOpStacks);
    if (facts_.has_memory) builder.Watch(Kind::kMemory);
    builder.run().record_shapes = options_.record_shapes;
    builder.run().profile_memory = facts_.has_memory;
    builder.run().with_stack = options_.with_stack;
    builder.run().op_cost_ns = facts_.op_cost_ns;
    builder.run().torch_version = TORCH_VERSION;
    TorchStacks stacks;
    // Symbolize only C++ frames: they are recorded as addresses, while Python's
    // stacks come with their names.
    if (options_.with_stack && !facts_.has_python) {
      stacks.symbolize = MakeTorchSymbolizer();
    }
    stacks.python = std::move(facts_.python);
    unnamed_ = stacks.python.unnamed;
    stacks.steps = StepsIn(clock);
    const TorchDecodeResult decoded =
        DecodeTorch(slots, clock, stacks, builder);
    AddLosses(decoded, builder);
    if (TakesSamples(options_)) AddStackLosses(decoded, builder);
  }

 private:
  StackSteps StepsIn(const ClockMap& clock) const {
    const auto at = [&](Ticks ticks) {
      return ticks == 0 ? 0 : clock.ToNs(ticks);
    };
    StackSteps steps{.sample_begin_ns = at(facts_.steps.sample_begin),
                     .sample_end_ns = at(facts_.steps.sample_end)};
    for (Ticks end : facts_.steps.ends) steps.ends_ns.push_back(at(end));
    return steps;
  }

  void AddStackLosses(const TorchDecodeResult& decoded,
                      TraceBuilder& builder) const {
    const StackCounts& counts = decoded.stacks;
    if (facts_.unsampled > 0) {
      builder.Add(
          Loss{.name = "stack-table-full",
               .detail = absl::StrCat(
                   facts_.unsampled,
                   " operators have no stack, because the table of stacks was "
                   "full; findings about them may name no source line"),
               .count = facts_.unsampled,
               .severity = Severity::kNote});
    }
    if (unnamed_ > 0) {
      builder.Add(Loss{.name = "stacks-unnamed",
                       .detail = absl::StrCat(
                           unnamed_,
                           " stacks and their modules are missing: only a "
                           "thread known to the Python interpreter can name "
                           "them, and Step() was called on another thread"),
                       .count = unnamed_});
    }
    if (counts.differs > 0) {
      builder.Add(Loss{
          .name = "stacks-differ",
          .detail = absl::StrCat(
              counts.differs, " of ", counts.checked,
              " operators that were checked have another source line than in "
              "the step before the window: the steps of this program differ, "
              "so source lines may belong to other calls of the same operator"),
          .count = counts.differs});
    }
    if (counts.unmatched > 0) {
      builder.Add(Loss{
          .name = "stacks-unmatched",
          .detail = absl::StrCat(
              counts.unmatched, " of ", counts.unmatched + counts.matched,
              " outermost operators have no source line or module: lines are "
              "taken from the step before the window, which did not run these "
              "operators, or ran them a different number of times"),
          .count = counts.unmatched,
          .severity = Severity::kNote});
    }
  }

  void AddLosses(const TorchDecodeResult& decoded,
                 TraceBuilder& builder) const {
    if (options_.record_memory && !facts_.has_memory) {
      builder.Add(Loss{
          .name = "memory-hook-taken",
          .detail = "no memory events were recorded: another profiler "
                    "(torch.profiler, or a second stepscope) receives those of "
                    "this thread; stop it first, or leave memory off",
          .count = -1});
    }
    if (facts_.lost_memory_hook) {
      builder.Add(Loss{
          .name = "memory-hook-lost",
          .detail =
              "memory events ended before the window did: a LibTorch debug "
              "scope "
              "that was open when the recording started has closed, or another "
              "thread stopped the recording; create the Profile outside of "
              "such scopes",
          .count = -1});
    }
    if (decoded.bad_records > 0) {
      builder.Add(Loss{
          .name = "bad-record",
          .detail = absl::StrCat(
              decoded.bad_records,
              " records of operators were invalid and were left out; this is a "
              "bug in stepscope, please report it"),
          .count = decoded.bad_records,
          .severity = Severity::kError});
    }
  }

  const TorchOptions options_;
  WindowFacts facts_;
  int64_t unnamed_ = 0;
};

class TorchCollector : public Collector {
 public:
  explicit TorchCollector(const TorchOptions& options) : options_(options) {}
  ~TorchCollector() override {
    if (is_started_) Unhook();
  }

  std::string_view name() const override { return "torch"; }

  absl::Status Start() override {
    if (!IsRecording()) {
      return absl::FailedPreconditionError(
          "torch: cannot start: no event buffers are open to record into; open "
          "them first");
    }
    // A process that was forked inside a window has inherited its hooks.
    TorchCollector* const other = hooked_.load();
    if (other != nullptr && other->process_ != getpid()) other->Unhook();
    TorchCollector* none = nullptr;
    if (!hooked_.compare_exchange_strong(none, this)) {
      return absl::FailedPreconditionError(
          "torch: cannot start: another torch collector of this process is "
          "recording; stop it first");
    }
    process_ = getpid();
    absl::Status status = Hook();
    if (!status.ok()) hooked_ = nullptr;
    return status;
  }

  void OnSampleStep(bool is_recorded) override {
    if (!TakesSamples(options_)) return;
    // Naming frames takes time, and a recorded step must not contain that time.
    names_at_end_ = is_recorded;
    facts_.steps.sample_begin = NowTicks();
    SetStackStage(StackStage::kSample);
  }

  void OnStep(int64_t, int64_t) override {
    if (facts_.steps.sample_begin == 0) return;
    if (facts_.steps.sample_end != 0) {
      facts_.steps.ends.push_back(NowTicks());
      return;
    }
    facts_.steps.sample_end = NowTicks();
    SetStackStage(StackStage::kCheck);
    if (facts_.has_python && !names_at_end_) NamePythonSamples();
  }

  // Operators that are running may still end. Memory events continue, because a
  // total needs all of them.
  void Pause() override {
    if (handle_.has_value()) at::removeCallback(*handle_);
    handle_.reset();
  }

  void Resume() override {
    if (handle_.has_value()) return;
    handle_ = at::addGlobalCallback(MakeTorchCallback(options_));
  }

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    if (!is_started_) {
      return absl::FailedPreconditionError(
          "torch: cannot stop: it was not started");
    }
    facts_.lost_memory_hook = !Unhook();
    facts_.unsampled = TakeUnsampled();
    if (facts_.has_python) {
      // Name the samples taken after OnStep(), which check the samples of the
      // sample step.
      NamePythonSamples();
      facts_.python = ClosePythonSamples();
    }
    return std::make_unique<TorchRecording>(options_,
                                            std::exchange(facts_, {}));
  }

 private:
  absl::Status Hook() {
    try {
      facts_ = {.op_cost_ns = MeasureOpCostNs(options_)};
      // Without the hook operators are still recorded.
      if (options_.record_memory) memory_hook_ = StartMemoryHook();
      facts_.has_memory = memory_hook_ != nullptr;
      if (TakesSamples(options_)) {
        facts_.has_python = SetUpSampling(options_);
      }
      // Installed last, so that on failure only the memory hook has to be
      // undone.
      handle_ = at::addGlobalCallback(MakeTorchCallback(options_));
      is_started_ = true;
    } catch (const std::exception& error) {
      if (memory_hook_ != nullptr) {
        StopMemoryHook(std::exchange(memory_hook_, nullptr));
      }
      return absl::InternalError(absl::StrCat(
          "torch: cannot install the RecordFunction hooks: ", error.what(),
          "; training goes on without them"));
    }
    return absl::OkStatus();
  }

  // False if the memory hook was gone. Operators that are running may still
  // end, because the event buffers know their slots.
  bool Unhook() {
    SetStackStage(StackStage::kNone);
    Pause();
    is_started_ = false;
    bool kept = true;
    if (memory_hook_ != nullptr) {
      kept = StopMemoryHook(std::exchange(memory_hook_, nullptr));
    }
    hooked_ = nullptr;
    return kept;
  }

  // The collector whose hooks are installed. A second set would record
  // everything twice.
  static constinit inline std::atomic<TorchCollector*> hooked_{nullptr};

  const TorchOptions options_;
  pid_t process_ = 0;  // in which it was started
  bool is_started_ = false;
  std::optional<at::CallbackHandle> handle_;  // none while paused
  std::shared_ptr<MemoryHook> memory_hook_;
  WindowFacts facts_;
  bool names_at_end_ = false;
};

}  // namespace

std::unique_ptr<Collector> MakeTorchCollector(const TorchOptions& options) {
  return std::make_unique<TorchCollector>(options);
}

}  // namespace stepscope
