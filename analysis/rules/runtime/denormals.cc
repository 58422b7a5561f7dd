// Do cores compute with denormal numbers? Sources: PyTorch documentation,
// torch.set_flush_denormal; Intel's optimization manual: an instruction on
// denormal numbers takes an assist of the microcode, some 150 cycles.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "device/kernel_uses.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace denormals_rules {
namespace {

// Cores stream 5 to 20 GB/s (STREAM). Ops in place touch no new memory, so not
// even the fastest of many calls is slower for another reason.
constexpr double kLeastBytesPerNs = 4;
constexpr double kUsualBytesPerNs = 20;
// Shorter ops mostly cost their call.
constexpr double kLeastElements = 100'000;
// With fewer calls, even the fastest may have been disturbed. If others
// disturb them, calls take different times.
constexpr size_t kLeastCalls = 8;
constexpr double kAlike = 1.5;  // median / fastest
constexpr char kChange[] = "no denormal numbers";
constexpr std::string_view kComputesInPlace[] = {
    "aten::add_",  "aten::addcdiv_", "aten::addcmul_", "aten::div_",
    "aten::lerp_", "aten::mul_",     "aten::sub_"};

bool IsFloating(const Trace& trace, const Argument& argument) {
  return IsAnyOf(trace.name(argument.type), {"float", "double"});
}

// True if the elements lie one after the other, or strides are not known.
bool IsDense(const Argument& argument) {
  return argument.strides.empty() ||
         std::ranges::count(argument.strides, int64_t{1}) > 0;
}

// Returns the bytes that such an op reads and writes at least; 0 if it has few
// elements, or may be slow for another reason.
double BytesOf(const Trace& trace, RowId inputs) {
  const std::vector<Argument>& arguments = trace.op_inputs()[inputs].arguments;
  if (arguments.empty() || !IsFloating(trace, arguments.front())) return 0;
  const auto elements = static_cast<double>(ElementsIn(arguments.front().dims));
  if (elements < kLeastElements) return 0;
  double tensors = 1;  // the result, and each argument of its size
  for (const Argument& argument : arguments) {
    if (argument.dims != arguments.front().dims) continue;
    if (!IsDense(argument)) return 0;
    ++tensors;
  }
  return tensors * elements *
         static_cast<double>(ElementBytes(trace.name(arguments.front().type)));
}

// The calls of one op with equal arguments.
struct Calls {
  double bytes = 0;
  std::vector<RowId> rows = {};
  double fastest_ns = 0, median_ns = 0;
};

double NsOf(const AnalysisContext& m, RowId row) {
  const Op& op = m.trace.ops()[row];
  return static_cast<double>(op.end_ns - op.begin_ns);
}

void SetPace(const AnalysisContext& m, Calls& calls) {
  std::vector<double> times;
  for (RowId row : calls.rows) times.push_back(NsOf(m, row));
  std::ranges::sort(times);
  calls.fastest_ns = times.front();
  calls.median_ns = times[times.size() / 2];
}

bool AreSlow(const Calls& calls) {
  return calls.rows.size() >= kLeastCalls &&
         calls.bytes < kLeastBytesPerNs * calls.fastest_ns &&
         calls.median_ns < kAlike * calls.fastest_ns;
}

Verdict CheckDenormals(const AnalysisContext& m) {
  std::map<std::pair<NameId, RowId>, Calls> kinds;
  for (std::string_view name : kComputesInPlace) {
    for (RowId row : m.tree.named(name)) {
      const Op& op = m.trace.ops()[row];
      if (op.inputs == kNone || op.thread != m.steps.thread ||
          !InSteadyStep(m.steps, op.begin_ns)) {
        continue;
      }
      const auto [at, is_new] = kinds.try_emplace({op.name, op.inputs});
      if (is_new) at->second.bytes = BytesOf(m.trace, op.inputs);
      if (at->second.bytes > 0) at->second.rows.push_back(row);
    }
  }
  for (auto& [kind, calls] : kinds) {
    if (!calls.rows.empty()) SetPace(m, calls);
  }
  std::erase_if(kinds, [](const auto& one) { return !AreSlow(one.second); });
  if (kinds.empty()) return Clean();
  std::vector<ShortenedOp> ops;
  for (const auto& [kind, calls] : kinds) {
    for (RowId row : calls.rows) {
      ops.push_back({row, calls.bytes / kUsualBytesPerNs / NsOf(m, row)});
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Calls& slowest =
      std::ranges::max_element(kinds, {}, [](const auto& one) {
        return one.second.median_ns *
               static_cast<double>(one.second.rows.size());
      })->second;
  const RowId row = slowest.rows.front();
  Finding finding = FindingAbout(m, row, row, "the op");
  finding.evidence =
      OpWithShapes(m.trace, row) + " takes " +
      Milliseconds(slowest.median_ns * 1e-6) + " a call, and never less than " +
      Milliseconds(slowest.fastest_ns * 1e-6) + ": that is " +
      Number(slowest.bytes / slowest.fastest_ns) +
      " GB/s in memory that it already has, where any core reads and writes 5 "
      "or more. Such ops take " +
      Milliseconds(all.ns * 1e-6) +
      " per step. Numbers that decay to below 1e-38 (denormal ones) slow them "
      "down so, as in traces, momenta and filters that fade without ever being "
      "cleared.";
  finding.assumption =
      "at best: these ops take the time of their memory, at "
      "20 GB/s";
  finding.fix_python =
      "torch.set_flush_denormal(True) before the first op, which rounds such "
      "numbers to 0, or clear them: x[x.abs() < 1e-30] = 0 now and then";
  finding.fix_cpp =
      "at::globalContext().setFlushDenormal(true) in each thread that "
      "computes, or clear such numbers now and then";
  finding.wrong_if =
      "(x.abs() < 1.2e-38) & (x != 0) is true for no element of these tensors";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "denormal-numbers",
     .question = "Do cores compute with denormal numbers?",
     .runs = Runs::kCpuOnly,
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckDenormals,
     .reference = "PyTorch documentation, torch.set_flush_denormal: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.set_flush_denormal.html",
     .detect = "an op in place that adds, multiplies or divides 100,000 floats "
               "or more moves less than 4 GB/s in the fastest of at least 8 "
               "calls, and the median call takes less than 1.5 times as long; "
               "this takes 1 % of the step",
     .avoid = "calls differ, because the threads lack cores (contended-cores); "
              "the op makes a new tensor, whose memory may be new as well; the "
              "elements do not lie one after the other; or other types than "
              "float and double, which cores may have no instructions for",
     .fix_cpp = "at::globalContext().setFlushDenormal(true)",
     .fix_python = "torch.set_flush_denormal(True)"}};

}  // namespace
}  // namespace denormals_rules

extern const std::span<const Rule> kDenormals = denormals_rules::kRules;

}  // namespace stepscope
