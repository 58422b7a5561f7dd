// NameOf(): returns a RecordFunction's name, and whether an operator's schema
// owns the name. A schema's name is never freed, so a pointer is enough. Any
// other name ends with its scope and has to be copied. RecordFunction's
// interface does not tell the two apart.
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

// Finds the constant that AskedName() needs. Must be called before the hooks
// are installed.
void ProbeNames();

// Uses the public interface: two calls into LibTorch, which take 5 ns per
// operator, where recording takes 100. All records that were named by a text
// have the same constant as overload name, which ProbeNames() finds. If it is
// null every name is copied, which is correct but slower.
namespace internal {
extern std::atomic<const char*> g_text_overload;
}
inline OpName AskedName(const at::RecordFunction& fn) {
  const char* of_texts =
      internal::g_text_overload.load(std::memory_order_relaxed);
  return {fn.name(), of_texts != nullptr && fn.overload_name() != of_texts};
}

// For LibTorch versions whose RecordFunction is known: reads a private member,
// which takes 1 ns. An explicit instantiation may name a private member, and
// the compiler checks its type.
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
