// NameOf(): returns a RecordFunction's name, and whether an operator's schema
// owns the name. RecordFunction's interface does not tell. OutlivesWindow()
// tells whether a pointer to the name is enough: any other name may be freed
// before the window is decoded, and has to be copied.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <torch/version.h>

#include <atomic>
#include <string>
#include <string_view>
#include <variant>

namespace stepscope {

struct OpName {
  const char* text;
  bool has_schema;
};

// True for a name of LibTorch's own operators, whose schemas are never freed.
// The schema of a program's operator is freed when it is defined again or its
// torch.library.Library is gone. Called for every operator, so it compares as
// few bytes as possible.
inline bool OutlivesWindow(const OpName& name) {
  const auto is_of = [&](std::string_view space) {
    const char* text = name.text;
    for (const char c : space) {
      if (*text++ != c) return false;
    }
    return true;
  };
  return name.has_schema &&
         (is_of("aten::") || is_of("c10d::") || is_of("prims::"));
}

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
