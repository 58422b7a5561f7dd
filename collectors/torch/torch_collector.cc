#include <absl/strings/str_cat.h>
#include <stepscope/collectors.h>
#include <stepscope/range.h>
#include <torch/version.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "torch_decode.h"
#include "torch_hooks.h"
#include "torch_memory.h"
#include "torch_stacks.h"

namespace stepscope {
namespace {

// A second set of hooks would record everything twice.
constinit std::atomic<bool> g_is_hooked{false};

class TorchRecording : public Recording {
 public:
  TorchRecording(const TorchOptions& options, double op_cost_ns,
                 int64_t unsampled, bool lost_memory_hook)
      : options_(options),
        op_cost_ns_(op_cost_ns),
        unsampled_(unsampled),
        lost_memory_hook_(lost_memory_hook) {}

  void AddTo(TraceBuilder& builder, const ClockMap& clock,
             const SlotLog& slots) override {
    builder.Watch(Kind::kOp);
    builder.Watch(Kind::kRange);
    builder.Watch(Kind::kCommunication);
    if (options_.record_shapes) builder.Watch(Kind::kOpShapes);
    if (options_.with_stack) builder.Watch(Kind::kOpStacks);
    if (options_.record_memory) builder.Watch(Kind::kMemory);
    builder.run().record_shapes = options_.record_shapes;
    builder.run().profile_memory = options_.record_memory;
    builder.run().with_stack = options_.with_stack;
    builder.run().op_cost_ns = op_cost_ns_;
    builder.run().torch_version = TORCH_VERSION;
    const TorchDecodeResult decoded = DecodeTorch(
        slots, clock,
        options_.with_stack ? MakeTorchSymbolizer() : Symbolizer(), builder);
    AddLosses(decoded, builder);
  }

 private:
  void AddLosses(const TorchDecodeResult& decoded,
                 TraceBuilder& builder) const {
    if (lost_memory_hook_) {
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
    if (unsampled_ > 0) {
      builder.Add(Loss{
          .name = "stack-table-full",
          .detail = absl::StrCat(
              unsampled_,
              " operators have no stack, because a thread ran more distinct "
              "chains of nested operators than its table holds; findings about "
              "them name no source line. Usually scopes whose names change at "
              "every call are the cause: keep numbers out of their names"),
          .count = unsampled_,
          .severity = Severity::kNote});
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
  const double op_cost_ns_;
  const int64_t unsampled_;
  const bool lost_memory_hook_;
};

class TorchCollector : public Collector {
 public:
  explicit TorchCollector(const TorchOptions& options) : options_(options) {}
  ~TorchCollector() override {
    if (handle_.has_value()) Unhook();
  }

  std::string_view name() const override { return "torch"; }

  absl::Status Start() override {
    if (!IsRecording()) {
      return absl::FailedPreconditionError(
          "torch: cannot start: no event buffers are open to record into; open "
          "them first");
    }
    if (g_is_hooked.exchange(true)) {
      return absl::FailedPreconditionError(
          "torch: cannot start: another torch collector of this process is "
          "recording; stop it first");
    }
    absl::Status status = Hook();
    if (!status.ok()) g_is_hooked.store(false);
    return status;
  }

  void OnStep(int64_t, int64_t) override {}

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    if (!handle_.has_value()) {
      return absl::FailedPreconditionError(
          "torch: cannot stop: it was not started");
    }
    const bool lost_memory_hook = !Unhook();
    return std::make_unique<TorchRecording>(options_, op_cost_ns_,
                                            TakeUnsampled(), lost_memory_hook);
  }

 private:
  absl::Status Hook() {
    try {
      op_cost_ns_ = MeasureOpCostNs(options_);
      if (options_.record_memory) {
        absl::StatusOr<std::shared_ptr<MemoryHook>> hook = StartMemoryHook();
        if (!hook.ok()) return hook.status();
        memory_hook_ = *std::move(hook);
      }
      (void)TakeUnsampled();  // of a window that was discarded
      handle_ = at::addGlobalCallback(MakeTorchCallback(options_));
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
  // end; the event buffers know their slots.
  bool Unhook() {
    at::removeCallback(*handle_);
    handle_.reset();
    bool kept = true;
    if (memory_hook_ != nullptr) {
      kept = StopMemoryHook(std::exchange(memory_hook_, nullptr));
    }
    g_is_hooked.store(false);
    return kept;
  }

  const TorchOptions options_;
  std::optional<at::CallbackHandle> handle_;
  std::shared_ptr<MemoryHook> memory_hook_;
  double op_cost_ns_ = -1;
};

}  // namespace

std::unique_ptr<Collector> MakeTorchCollector(const TorchOptions& options) {
  return std::make_unique<TorchCollector>(options);
}

}  // namespace stepscope
