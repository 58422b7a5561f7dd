#include "torch_sampling.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <stepscope/clock.h>

#include <algorithm>
#include <array>
#include <exception>

#include "torch_python.h"
#include "torch_stacks.h"

namespace stepscope {
namespace internal {

constinit std::atomic<StackStage> g_stack_stage{StackStage::kNone};
constinit std::atomic<uint64_t> g_waiting_names{0};

}  // namespace internal

namespace {

// After the sample step, about one in this many operators is checked.
constexpr uint32_t kCheckEvery = 100;
// Limits the memory for the stacks of one window. A C++ stack takes up to 1 KiB
// of the event buffers, a Python stack some hundred bytes outside of them.
constexpr int64_t kMaxSamples = 1 << 15;

// Operators that wait for the device of their first argument or, if there is a
// second name, for both.
constexpr std::array<std::pair<const char*, const char*>, 12> kWaiting = {
    {{"aten::_local_scalar_dense", ""},
     {"aten::copy_", ""},
     {"aten::nonzero", ""},
     {"aten::masked_select", ""},
     {"aten::_unique2", ""},
     {"aten::unique_dim", ""},
     {"aten::unique_consecutive", ""},
     {"aten::equal", ""},
     {"aten::repeat_interleave", "Tensor"},
     {"aten::bincount", ""},
     {"aten::_assert_scalar", ""},
     {"aten::is_nonzero", ""}}};

constinit std::array<std::atomic<const char*>, kWaiting.size()> g_waiting{};
constinit std::atomic<const char*> g_copy{nullptr};
constinit std::atomic<bool> g_takes_python{false};
constinit std::atomic<int64_t> g_samples{0};

// True while a sample is taken. Operators that run meanwhile (in a finaliser)
// are not sampled.
thread_local bool t_is_taking = false;
thread_local uint64_t t_random = 0;

// Returns a random number from 1 to 199, so that checks do not hit the same
// place of every step.
uint32_t NextCheck() {
  if (t_random == 0) t_random = static_cast<uint64_t>(NowTicks()) | 1;
  t_random ^= t_random << 13;
  t_random ^= t_random >> 7;
  t_random ^= t_random << 17;
  return static_cast<uint32_t>(t_random % (2 * kCheckEvery - 1)) + 1;
}

// False for a tensor subclass, which answers questions about its device by
// calling Python. Its operators on plain tensors are looked at themselves.
bool IsPlain(const at::Tensor& tensor) {
  return tensor.defined() &&
         !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

bool WaitsForDevice(const at::RecordFunction& fn, const OpName& name) {
  if (!name.has_schema ||
      std::ranges::none_of(g_waiting, [&](const auto& waiting) {
        return waiting.load(std::memory_order_relaxed) == name.text;
      })) {
    return false;
  }
  const auto inputs = fn.inputs();
  if (inputs.empty() || !inputs[0].isTensor()) return false;
  const at::Tensor& self = inputs[0].toTensor();
  if (!IsPlain(self)) return false;
  if (name.text != g_copy.load(std::memory_order_relaxed)) {
    return !self.is_cpu();
  }
  if (inputs.size() < 2 || !inputs[1].isTensor()) return false;
  const at::Tensor& source = inputs[1].toTensor();
  return IsPlain(source) && source.device() != self.device();
}

void FindWaiting() {
  uint64_t bits = 0;
  for (size_t i = 0; i < kWaiting.size(); ++i) {
    const auto op = c10::Dispatcher::singleton().findSchema(
        {kWaiting[i].first, kWaiting[i].second});
    if (!op.has_value()) continue;
    const char* name = op->schema().name().c_str();
    g_waiting[i].store(name, std::memory_order_relaxed);
    bits |= internal::BitOfName(name);
    if (i == 1) g_copy.store(name, std::memory_order_relaxed);
  }
  internal::g_waiting_names.store(bits, std::memory_order_relaxed);
}

}  // namespace

bool internal::WantsStackSlow(const at::RecordFunction& fn, const OpName& name,
                              bool is_outermost) {
  if (is_outermost &&
      g_stack_stage.load(std::memory_order_relaxed) == StackStage::kCheck) {
    t_until_check = NextCheck();
  }
  return !t_is_taking && (is_outermost || WaitsForDevice(fn, name));
}

bool SetUpSampling(const TorchOptions& options) {
  SetStackStage(StackStage::kNone);
  g_samples.store(0, std::memory_order_relaxed);
  FindWaiting();
  const bool has_python = OpenPythonSamples(
      options.with_stack,
      options.with_modules ? options.module_hook : ModuleHook());
  g_takes_python.store(has_python, std::memory_order_relaxed);
  return has_python;
}

void SetStackStage(StackStage stage) {
  internal::g_stack_stage.store(stage, std::memory_order_relaxed);
}

void TakeSample() {
  if (g_samples.fetch_add(1, std::memory_order_relaxed) >= kMaxSamples) return;
  t_is_taking = true;
  try {
    if (g_takes_python.load(std::memory_order_relaxed)) {
      AddPythonSample(internal::g_stack_stage.load(std::memory_order_relaxed) ==
                      StackStage::kSample);
    } else {
      AddStack();
    }
  } catch (const std::exception&) {
    // The operator then has no stack. Does not catch `...`, because an
    // interpreter that shuts down ends the thread with its own exception, which
    // must pass.
  }
  t_is_taking = false;
}

int64_t TakeUnsampled() {
  return std::max<int64_t>(
      0, g_samples.exchange(0, std::memory_order_relaxed) - kMaxSamples);
}

}  // namespace stepscope
