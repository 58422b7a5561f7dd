#include "xspace/writer/xspace_context.h"

#include <stepscope/compiled_kernel.h>
#include <stepscope/op_cost.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace stepscope {
namespace {

bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

// Returns `text` with '_' for every character that XProf's grammar lacks; '.'
// becomes `dot`.
std::string Word(std::string_view text, char dot) {
  std::string word;
  for (char c : text) word += c == '.' ? dot : IsWordChar(c) ? c : '_';
  return word;
}

// Returns the name by which XProf knows an op whose kernels could use Tensor
// Cores, or "". XProf looks for "/MatMul" and for endings like "Conv2D".
std::string_view TensorCoreOp(std::string_view op) {
  switch (ClassOfOp(op)) {
    case KernelClass::kConvolution:
      if (op.find("3d") != std::string_view::npos) return "Conv3D";
      if (op.ends_with("_weight")) return "Conv2DBackpropFilter";
      if (op.find("ackward") != std::string_view::npos)
        return "Conv2DBackpropInput";
      return "Conv2D";
    case KernelClass::kMatmul:
      return op.find("bmm") == std::string_view::npos ? "MatMul"
                                                      : "BatchMatMul";
    default:
      return "";
  }
}

// "aten::conv2d" -> "conv2d"; "autograd::engine::evaluate_function: X" -> "X".
std::string_view LastPart(std::string_view name) {
  const size_t colon = name.rfind(':');
  if (colon != std::string_view::npos) name.remove_prefix(colon + 1);
  while (name.starts_with(' ')) name.remove_prefix(1);
  return name;
}

// True for an autograd node, "AddmmBackward0", also with the prefix that the
// engine adds when it runs the node.
bool IsBackwardName(std::string_view name) {
  const std::string_view kMark = "Backward";
  const size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos) return false;
  const std::string_view number = name.substr(mark + kMark.size());
  return !number.empty() &&
         number.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<NameId> ModulePaths(const Trace& trace) {
  std::vector<NameId> paths;
  std::vector<bool> seen(trace.name_count());
  for (const Range& range : trace.ranges()) {
    if (range.kind != RangeKind::kModule || seen[range.name]) continue;
    seen[range.name] = true;
    if (paths.empty()) paths.push_back(0);
    if (range.name != 0) paths.push_back(range.name);
  }
  return paths;
}

}  // namespace

Numbers::Numbers(size_t count, size_t largest) {
  if (largest <= std::numeric_limits<uint16_t>::max()) {
    narrow_.resize(count);
  } else {
    wide_.resize(count);
  }
}

XContext::XContext(const Trace& trace)
    : trace_(trace),
      span_(SpanOf(trace)),
      modules_(ModulePaths(trace)),
      module_of_(modules_.empty() ? 0 : trace.ops().size(), modules_.size()),
      in_backward_(trace.ops().size()) {
  FindModules();
}

// A backward op belongs to the module of its forward op, because autograd runs
// it on another thread and outside the module's range.
void XContext::FindModules() {
  std::vector<uint32_t> path_of(trace_.name_count());  // in modules_
  for (size_t i = 0; i < modules_.size(); ++i)
    path_of[modules_[i]] = static_cast<uint32_t>(i);
  // Both tables are sorted by begin, so one pass with a stack of open modules
  // per thread is enough.
  std::vector<std::vector<RowId>> open(trace_.threads().size());
  RowId next = 0;
  const auto ranges = trace_.ranges();
  for (RowId row = 0; row < trace_.ops().size(); ++row) {
    const Op& op = trace_.ops()[row];
    for (; next < ranges.size() && ranges[next].begin_ns <= op.begin_ns;
         ++next) {
      const Range& range = ranges[next];
      if (range.kind == RangeKind::kModule && range.thread < open.size())
        open[range.thread].push_back(next);
    }
    const bool has_parent = op.parent != kNone;
    in_backward_[row] =
        op.kind == OpKind::kBackward || (has_parent && in_backward_[op.parent]);
    if (modules_.empty()) continue;
    if (in_backward_[row]) {
      if (op.forward != kNone) {
        module_of_.Set(row, module_of_[op.forward]);
      } else if (has_parent) {
        module_of_.Set(row, module_of_[op.parent]);
      }
    } else if (op.thread < open.size()) {
      std::vector<RowId>& modules = open[op.thread];
      while (!modules.empty() && ranges[modules.back()].end_ns <= op.begin_ns)
        modules.pop_back();
      if (!modules.empty())
        module_of_.Set(row, path_of[ranges[modules.back()].name]);
    }
  }
}

RowId XContext::StepAt(int64_t time_ns) const {
  const auto steps = trace_.steps();
  if (steps.empty()) return kNone;
  const auto holds = [&](RowId step) {
    return steps[step].begin_ns <= time_ns &&
           (step + 1 == steps.size() || steps[step + 1].begin_ns > time_ns);
  };
  // Callers ask mostly in time order.
  if (holds(last_step_))
    return steps[last_step_].end_ns > time_ns ? last_step_ : kNone;
  const auto after = std::partition_point(
      steps.begin(), steps.end(),
      [&](const Step& step) { return step.begin_ns <= time_ns; });
  if (after == steps.begin()) return kNone;
  last_step_ = static_cast<RowId>(after - 1 - steps.begin());
  return steps[last_step_].end_ns > time_ns ? last_step_ : kNone;
}

RowId XContext::StepOf(const DeviceWork& work) const {
  return StepAt(work.call == kNone
                    ? work.begin_ns
                    : trace_.runtime_calls()[work.call].begin_ns);
}

// XProf groups events by this number. If a plane lacked it, XProf would group
// by its own rules, which lose loading and host time before the first copy.
void XContext::Group(RowId step, XEventBytes& event) const {
  if (step != kNone) event.Int(XStatId::kGroupId, trace_.steps()[step].number);
}

// Names and modules are small numbers, so the key holds them exactly: ops with
// different texts never share a key.
uint64_t XContext::TfOpKey(RowId op) const {
  return uint64_t{ModuleOf(op)} << 33 | uint64_t{trace_.ops()[op].name} << 1 |
         uint64_t{in_backward_[op]};
}

// XProf splits "<path>/<op>:<type>" at the first colon, so an unchanged
// "aten::mm" would have no type. Both parts have a grammar. XProf gives a text
// that does not fit the type "unknown" and drops its path.
std::string XContext::TfOp(RowId op) const {
  return TfOp(trace_.name(trace_.ops()[op].name), trace_.name(ModuleOf(op)),
              in_backward_[op]);
}

std::string XContext::TfOpOfCapture(const Kernel& kernel) const {
  std::string_view name = "captured";
  bool in_backward = false;
  if (kernel.captured_ops != kNone) {
    const std::vector<NameId>& ops =
        trace_.stacks()[kernel.captured_ops].frames;
    if (!ops.empty()) name = trace_.name(ops.front());
    in_backward = std::ranges::any_of(
        ops, [&](NameId op) { return IsBackwardName(trace_.name(op)); });
  }
  return TfOp(name, trace_.name(kernel.captured_module), in_backward);
}

std::string XContext::TfOp(std::string_view name, std::string_view module,
                           bool in_backward) const {
  const std::string_view part = LastPart(name);
  std::string shown = Word(name.starts_with("aten::") ? part : name, '_');
  if (name.starts_with("aten::")) {
    const std::string_view known = TensorCoreOp(name);
    if (!known.empty()) shown = known;
  }
  // XProf recognises training by a scope named gradients.
  if (in_backward) {
    shown = "gradients/" + shown;
  }
  // The type of a compiled kernel is the operators that were fused into it. Its
  // name stays the launched name.
  const std::optional<CompiledKernel> compiled = ParseCompiledKernel(name);
  std::string type;
  if (compiled.has_value()) {
    for (std::string_view op : compiled->ops) {
      if (!type.empty()) type += '_';
      type += Word(op, '_');
    }
  }
  if (type.empty()) type = Word(part, '_');
  if (type.empty()) type = "op";
  if (type[0] >= '0' && type[0] <= '9') type = "_" + type;
  // A type that begins with a lower-case letter must not have capitals.
  if (type[0] >= 'a' && type[0] <= 'z') {
    for (char& c : type)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  std::string path = Word(module, '/');
  if (!path.empty()) path += '/';
  path += shown;
  if (path.starts_with('_') || path.starts_with('/')) path = "op" + path;
  // XProf looks for "/MatMul", so a product outside any module needs a path.
  if (path == "MatMul") path = "op/MatMul";
  return path + ":" + type;
}

int64_t XTfOps::Id(RowId op) {
  const auto [it, added] = ids_.try_emplace(context_.TfOpKey(op), 0);
  if (added) it->second = names_.Text(context_.TfOp(op));
  return it->second;
}

int64_t XTfOps::IdOfCapture(const Kernel& kernel) {
  const auto [it, added] = capture_ids_.try_emplace(
      uint64_t{kernel.captured_ops} << 32 | kernel.captured_module, 0);
  if (added) it->second = names_.Text(context_.TfOpOfCapture(kernel));
  return it->second;
}

void XFusedOps::AddTo(NameId name, XEventBytes& event) {
  const std::string& text = ops_.Of(name);
  if (!text.empty()) event.Ref(XStatId::kFusedOps, names_.Text(text));
}

}  // namespace stepscope
