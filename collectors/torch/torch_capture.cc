// Implements CaptureScopes with RecordFunction. The hooks below are installed
// only while a CUDA graph is captured, so they may copy names and take locks.
#include <ATen/record_function.h>
#include <stepscope/capture_scopes.h>
#include <stepscope/collectors.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "torch_python.h"
#include "torch_sampling.h"

namespace stepscope {
namespace {

constexpr size_t kMostOps = 64;  // per place; real ones have about ten
constexpr size_t kMostForwardOps = size_t{1} << 16;

struct CapturedOp {
  const at::RecordFunction* function = nullptr;
  std::string name;
  // For an autograd node: identifies its forward op.
  uint64_t forward_thread = 0;
  int64_t sequence = -1;
  bool is_node = false;
};

// The open operators of the calling thread, during capture number `capture`.
struct CapturedOps {
  uint64_t capture = 0;
  std::vector<CapturedOp> ops;
  std::string module;  // around the outermost operator
};
thread_local CapturedOps t_open;
constinit std::atomic<uint64_t> g_capture{0};

// Data of all captures together. Forward and backward may be captured
// separately, so the modules of forward ops outlive a capture.
struct CaptureFacts {
  std::mutex mutex;
  ModuleHook hook;
  std::map<std::pair<uint64_t, int64_t>, std::string> module_of_forward;
};
CaptureFacts& AllCaptures() {
  static CaptureFacts* const facts = new CaptureFacts;
  return *facts;
}

// Returns "" during the sample step, because the hook then numbers calls for
// the samples.
std::string ModuleHere() {
  if (internal::g_stack_stage.load(std::memory_order_relaxed) ==
      StackStage::kSample) {
    return "";
  }
  ModuleHook hook;
  {
    const std::lock_guard lock(AllCaptures().mutex);
    hook = AllCaptures().hook;
  }
  return hook ? OpenModulePath(hook) : "";
}

void KeepModule(const at::RecordFunction& fn, const std::string& module) {
  if (module.empty() || fn.seqNr() < 0) return;
  const std::lock_guard lock(AllCaptures().mutex);
  auto& known = AllCaptures().module_of_forward;
  if (known.size() == kMostForwardOps) known.clear();
  known.emplace(std::pair(fn.threadId(), fn.seqNr()), module);
}

std::string ModuleOfForward(const CapturedOp& node) {
  const std::lock_guard lock(AllCaptures().mutex);
  const auto& known = AllCaptures().module_of_forward;
  const auto found = known.find({node.forward_thread, node.sequence});
  return found == known.end() ? "" : found->second;
}

std::unique_ptr<at::ObserverContext> OnCapturedStart(
    const at::RecordFunction& fn) {
  CapturedOps& open = t_open;
  const uint64_t capture = g_capture.load(std::memory_order_relaxed);
  if (open.capture != capture) {
    // Operators that an earlier capture left open have ended unseen.
    open.ops.clear();
    open.capture = capture;
  }
  const bool is_node = fn.scope() == at::RecordScope::BACKWARD_FUNCTION;
  // No module is open on autograd's thread, so Here() looks up the module of
  // the forward op.
  if (open.ops.empty()) open.module = is_node ? "" : ModuleHere();
  KeepModule(fn, open.module);
  open.ops.push_back({.function = &fn,
                      .name = fn.name(),
                      .forward_thread = fn.forwardThreadId(),
                      .sequence = fn.seqNr(),
                      .is_node = is_node});
  return nullptr;
}

// Some starts have no end here, because an operator may end on another thread.
void OnCapturedEnd(const at::RecordFunction& fn, at::ObserverContext*) {
  std::vector<CapturedOp>& ops = t_open.ops;
  for (size_t i = ops.size(); i-- > 0;) {
    if (ops[i].function != &fn) continue;
    // Also drops the operators that began inside it and ended on another
    // thread.
    ops.resize(i);
    return;
  }
}

class TorchCaptureScopes : public CaptureScopes {
 public:
  explicit TorchCaptureScopes(const TorchOptions& options) {
    const std::lock_guard lock(AllCaptures().mutex);
    AllCaptures().hook =
        options.with_modules ? options.module_hook : ModuleHook();
  }
  ~TorchCaptureScopes() override { TorchCaptureScopes::End(); }

  void Begin() override {
    const std::lock_guard lock(mutex_);
    if (handle_.has_value()) return;
    // Invalidates what threads have stored for earlier captures
    // (OnCapturedStart()).
    ++g_capture;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&OnCapturedStart, &OnCapturedEnd)
            .scopes({at::RecordScope::FUNCTION,
                     at::RecordScope::BACKWARD_FUNCTION,
                     at::RecordScope::CUSTOM_CLASS}));
  }

  void End() override {
    const std::lock_guard lock(mutex_);
    if (!handle_.has_value()) return;
    at::removeCallback(*handle_);
    handle_.reset();
  }

  CapturedAt Here() const override {
    const CapturedOps& open = t_open;
    CapturedAt at;
    if (open.capture != g_capture.load(std::memory_order_relaxed)) return at;
    at.module = open.module;
    for (size_t i = open.ops.size(); i-- > 0 && at.ops.size() < kMostOps;) {
      const CapturedOp& op = open.ops[i];
      at.ops.push_back(op.name);
      if (at.module.empty() && op.is_node) at.module = ModuleOfForward(op);
    }
    return at;
  }

 private:
  std::mutex mutex_;
  std::optional<at::CallbackHandle> handle_;  // while a graph is captured
};

}  // namespace

std::unique_ptr<CaptureScopes> MakeTorchCaptureScopes(
    const TorchOptions& options) {
  return std::make_unique<TorchCaptureScopes>(options);
}

}  // namespace stepscope
