// A RecordFunction's name, and whether an operator's schema owns it: such a
// name lives as long as the operator, any other dies with its scope and has to
// be copied. RecordFunction does not say which.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <torch/version.h>

#include <atomic>
#include <string>
#include <variant>

namespace stepscope {

struct OpName {
  const char* text;
  bool has_schema;
};

// Learns what AskedName() has to know. Called before the hooks are installed.
void ProbeNames();

// By the public interface: two calls into LibTorch, 5 ns on an operator that
// costs 100. A record named by a text has one and the same constant for an
// overload's name, which ProbeNames() learns. Null until then, and should it
// turn out otherwise: then every name is copied, which is right, and slower.
namespace internal {
extern std::atomic<const char*> g_text_overload;
}
inline OpName AskedName(const at::RecordFunction& fn) {
  const char* of_texts =
      internal::g_text_overload.load(std::memory_order_relaxed);
  return {fn.name(), of_texts != nullptr && fn.overload_name() != of_texts};
}

// The LibTorch versions whose record was read: there the member itself says it,
// in 1 ns. Naming a private member in an explicit instantiation is allowed, and
// the compiler checks it.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 15
namespace internal {
using NameMember = std::variant<std::string, at::RecordFunction::schema_ref_t>;
NameMember at::RecordFunction::*GetNameMember();
template <NameMember at::RecordFunction::*kMember>
struct NameAccess {
  friend NameMember at::RecordFunction::*GetNameMember() { return kMember; }
};
template struct NameAccess<&at::RecordFunction::fn_>;
}  // namespace internal

inline OpName NameOf(const at::RecordFunction& fn) {
  const internal::NameMember& name = fn.*internal::GetNameMember();
  if (const auto* schema = std::get_if<at::RecordFunction::schema_ref_t>(&name))
    return {schema->get().name().c_str(), true};
  return {std::get_if<std::string>(&name)->c_str(), false};
}
#else
inline OpName NameOf(const at::RecordFunction& fn) { return AskedName(fn); }
#endif

}  // namespace stepscope
