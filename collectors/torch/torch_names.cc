#include "torch_names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <memory>
#include <utility>

namespace stepscope {

namespace internal {
constinit std::atomic<const char*> g_text_overload{nullptr};
}

namespace {

// Returns the overload name of a record that is made here and seen by no other
// callback.
template <typename Name>
const char* OverloadNameOf(Name name) {
  at::StepCallbacks callbacks(at::RecordFunction::currentThreadId(),
                              at::RecordScope::FUNCTION);
  callbacks.callbacks_.push_back(
      {[](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
         return nullptr;
       },
       [](const at::RecordFunction&, at::ObserverContext*) {}});
  at::RecordFunction fn(std::move(callbacks));
  fn.before(name);
  return fn.overload_name();
}

}  // namespace

void ProbeNames() {
  // A schema without an overload, so that the two names can differ only by
  // address.
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::relu", ""});
  if (!op.has_value()) return;
  const char* of_text = OverloadNameOf("text");
  if (of_text == OverloadNameOf("a text that is not kept in place") &&
      of_text != OverloadNameOf(std::cref(op->schema()))) {
    internal::g_text_overload.store(of_text, std::memory_order_relaxed);
  }
}

}  // namespace stepscope
