#include "engine/coverage.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rule_families.h"
#include "ops/contains.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A cause is large from this share of the step (the share from which
// torch-tb-profiler and XProf report loading), or from this share of the
// critical path.
constexpr double kOfStep = 0.05, kOfPath = 0.10;
// Findings answer a cause if together they may save this share of its time.
constexpr double kMostOfIt = 0.5;
constexpr double kPrintedMs = 0.005;  // a smaller gain is printed as 0 ms
constexpr size_t kNamesShown = 3;
constexpr size_t kReasonsShown = 2;

bool IsAbout(std::string_view id, Cause cause) {
  return std::ranges::count(CausesOf(id), cause) > 0;
}

// What holds for each cause whatever the rules find; empty if there is nothing
// to say.
const char* KnownOf(Cause cause, const Report& report) {
  switch (cause) {
    case Cause::kKernelLatency:
      return "such a gap follows every kernel; only fewer, longer kernels or "
             "CUDA graphs reduce it";
    case Cause::kGraphOpaque:
      return "the recording does not show what the nodes of a graph wait for";
    case Cause::kDependency:
      return "the recording does not show what the queued work waits for";
    case Cause::kProfiler:
      return "the profiler's own work, absent when the program runs without it";
    case Cause::kHostCode:
      return report.lines.empty() ? "the program's own code; record with "
                                    "with_stack=True to see its lines"
                                  : "the program's own code";
    case Cause::kUnknown:
      return report.has_gpu ? "the GPU is idle, and no host event shows why"
                            : "no event shows what the thread did";
    default:
      return "";
  }
}

// "mostly aten::mm 20.1, aten::addmm 9.20 ms": what takes most of `ms`. A GPU's
// computing is listed by op, because most of it may be off the critical path.
// The other causes of a run with a GPU are listed by their time on the path,
// which may be more than the idle time in the time split.
std::string LongestOf(const Report& report, Cause cause, double ms,
                      double path_ms) {
  std::string text;
  size_t shown = 0;
  double sum = 0;
  const auto show = [&](std::string_view name, double part_ms) {
    if (name.empty() || part_ms < 0.01 * report.steps.mean_ms) return;
    if (shown++ >= kNamesShown) return;
    sum += part_ms;
    text +=
        (shown == 1 ? "" : ", ") + std::string(name) + " " + Number(part_ms);
  };
  if (cause == Cause::kCompute && report.has_gpu) {
    // Ops of other threads have rows of their own.
    std::vector<std::pair<std::string_view, double>> ops;
    for (const TopOp& op : report.top_ops) {
      if (op.is_collective) continue;
      const auto same = std::ranges::find(
          ops, op.name, &std::pair<std::string_view, double>::first);
      if (same == ops.end()) {
        ops.emplace_back(op.name, op.gpu_self_ms_per_step);
      } else {
        same->second += op.gpu_self_ms_per_step;
      }
    }
    std::ranges::stable_sort(ops, std::greater(),
                             &std::pair<std::string_view, double>::second);
    for (const auto& [name, part_ms] : ops) show(name, part_ms);
  }
  // Kernels of CUDA graphs, and those launched before the recording, have no
  // ops.
  if (shown == 0) {
    for (const PathPart& part : report.critical_path) {
      if (part.category == CauseKey(cause)) show(part.name, part.ms_per_step);
    }
  }
  if (text.empty()) return "";
  if (report.has_gpu && cause != Cause::kCompute) {
    return (sum >= kMostOfIt * path_ms ? "on the critical path mostly "
                                       : "longest on the critical path: ") +
           text + " ms";
  }
  // The ops' times are those of all devices; `ms` is of one.
  const std::string all =
      report.devices_used > 1
          ? "on " + std::to_string(report.devices_used) + " GPUs together "
          : "";
  return all + (sum >= kMostOfIt * ms ? "mostly " : "longest: ") + text + " ms";
}

// Returns the first clause of a reason. The rest is advice on how to record.
std::string FirstClause(const std::string& why) {
  return why.substr(0, why.find_first_of(";("));
}

// True if rule `id` is about `cause`: as its main cause if `mainly`, else as
// another of its causes.
bool Speaks(std::string_view id, Cause cause, bool mainly) {
  return IsAbout(id, cause) && (CausesOf(id).front() == cause) == mainly;
}

// "a, b and c save only part of it"; empty if no finding of `ids` is about it.
std::string PartsInWords(const std::vector<std::string>& ids, Cause cause,
                         bool mainly) {
  std::vector<std::string> parts;
  for (const std::string& id : ids) {
    if (Speaks(id, cause, mainly)) parts.push_back(id);
  }
  if (parts.empty()) return "";
  return ListedWithAnd(parts) + (parts.size() == 1 ? " saves" : " save") +
         " only part of it";
}

// "a is only a note (predicted 0.40 ms)", for the note about `cause` with the
// largest gain; empty if there is none.
std::string NoteInWords(const Report& report, Cause cause, bool mainly) {
  const Finding* largest = nullptr;
  for (const Finding& finding : report.findings) {
    if (!IsNote(finding) || finding.gain_kind == GainKind::kNone ||
        finding.gain.expected_ms < kPrintedMs ||
        !Speaks(finding.id, cause, mainly)) {
      continue;
    }
    if (largest == nullptr ||
        finding.gain.expected_ms > largest->gain.expected_ms) {
      largest = &finding;
    }
  }
  if (largest == nullptr) return "";
  return largest->id + " is only a note (" + GainInShort(*largest) + ")";
}

// "see a": a finding about the recording, which gains nothing.
std::string StatedInWords(const Report& report, Cause cause) {
  for (const Finding& finding : report.findings) {
    if (!IsNote(finding) && finding.gain_kind == GainKind::kNone &&
        Speaks(finding.id, cause, true)) {
      return "see " + finding.id;
    }
  }
  return "";
}

// True if the rule needs what torch.profiler does not record.
bool LacksEvents(const SkippedRule& rule) {
  return rule.why == "no device-sample events were recorded" ||
         rule.why == "no host-usage events were recorded" ||
         rule.why == "no settings events were recorded";
}

// "2 rules need ".
std::string RulesNeed(int64_t count) {
  return Count(count, "rule") + (count == 1 ? " needs " : " need ");
}

// "a was skipped: no throttle reasons were recorded".
std::string SkippedInWords(const Report& report, Cause cause) {
  std::string text;
  size_t count = 0;
  for (const SkippedRule& rule : report.skipped) {
    if (!Speaks(rule.id, cause, true) || rule.elsewhere || LacksSizes(rule) ||
        LacksEvents(rule)) {
      continue;
    }
    if (++count > kReasonsShown) break;
    text += (count == 1 ? "" : ", ") + rule.id +
            " was skipped: " + FirstClause(rule.why);
    while (text.ends_with(' ')) text.pop_back();
  }
  return text;
}

// What the rules about `cause` say: the first reason that applies.
std::string RulesSay(const Report& report, Cause cause,
                     const CauseAnswer& answer) {
  for (bool mainly : {true, false}) {
    for (const std::string& text : {PartsInWords(answer.ids, cause, mainly),
                                    NoteInWords(report, cause, mainly)}) {
      if (!text.empty()) return text;
    }
  }
  std::string stated = StatedInWords(report, cause);
  if (!stated.empty()) return stated;
  std::string skipped = SkippedInWords(report, cause);
  if (!skipped.empty()) return skipped;
  const auto unsized =
      std::ranges::count_if(report.skipped, [&](const SkippedRule& rule) {
        return LacksSizes(rule) && Speaks(rule.id, cause, true);
      });
  std::string need = RulesNeed(unsized) + "sizes of tensors";
  const size_t looked = answer.looked.size();
  if (looked == 0 && unsized == 0) {
    const auto unseen =
        std::ranges::count_if(report.skipped, [&](const SkippedRule& rule) {
          return LacksEvents(rule) && Speaks(rule.id, cause, true);
        });
    return unseen == 0 ? "no rule covers it"
                       : RulesNeed(unseen) +
                             "events that torch.profiler does not record";
  }
  if (looked == 0) return need;
  std::string text = looked <= kNamesShown
                         ? (looked == 1 ? "the rule " : "the rules ") +
                               ListedWithAnd(answer.looked) +
                               " found nothing to change"
                         : Count(static_cast<int64_t>(looked), "rule") +
                               " found nothing to change";
  if (unsized > 0) text += ", and " + need;
  return text;
}

double MsOf(const std::map<std::string, double>& split,
            const std::string& key) {
  const auto it = split.find(key);
  return it == split.end() ? 0 : it->second;
}

// The answer to one cause that is large.
CauseAnswer AnswerTo(const Report& report, Cause cause, double ms,
                     double path_ms) {
  CauseAnswer answer{.cause = CauseKey(cause), .ms = ms, .path_ms = path_ms};
  double saved = 0;
  for (const Finding& finding : report.findings) {
    // Warnings with a gain are printed, too, so they also answer the cause.
    const bool speaks =
        IsAdvice(finding) ||
        (!IsNote(finding) && finding.gain_kind != GainKind::kNone);
    if (!speaks || !IsAbout(finding.id, cause)) continue;
    answer.ids.push_back(finding.id);
    saved += finding.gain.expected_ms;
  }
  // If the cause is large only on the critical path, compares with its time
  // there.
  const bool in_split = ms >= kOfStep * report.steps.mean_ms;
  if (saved >= kMostOfIt * (in_split ? ms : path_ms)) return answer;
  for (const std::string& id : report.clean) {
    if (IsAbout(id, cause)) answer.looked.push_back(id);
  }
  if (std::ranges::any_of(report.findings, ShowsDamage)) {
    answer.why = "the recording is incomplete";
    return answer;
  }
  for (const std::string& part :
       {LongestOf(report, cause, in_split ? ms : path_ms, path_ms),
        std::string(KnownOf(cause, report)), RulesSay(report, cause, answer)}) {
    if (part.empty()) continue;
    answer.why += (answer.why.empty() ? "" : "; ") + part;
  }
  return answer;
}

}  // namespace

std::span<const Cause> CausesOf(std::string_view id) {
  const Rule* rule = FindRule(id);
  if (rule == nullptr) return {};
  return {rule->causes.begin(), rule->causes.size()};
}

void ExplainCauses(Report& report) {
  report.coverage.clear();
  const double step_ms = report.steps.mean_ms;
  if (step_ms <= 0) return;
  double whole_path = 0;
  std::vector<Cause> unanswered;
  for (const auto& [key, ms] : report.path_split_ms) whole_path += ms;
  for (size_t i = 0; i < kCauses; ++i) {
    const auto cause = static_cast<Cause>(i);
    const std::string key = CauseKey(cause);
    const double ms = MsOf(report.time_split_ms, key);
    const double path_ms = MsOf(report.path_split_ms, key);
    if (ms < kOfStep * step_ms &&
        (path_ms <= 0 || path_ms < kOfPath * whole_path)) {
      continue;
    }
    report.coverage.push_back(AnswerTo(report, cause, ms, path_ms));
    if (!report.coverage.back().why.empty()) unanswered.push_back(cause);
  }
  std::erase_if(report.clean, [&](const std::string& id) {
    const std::span<const Cause> causes = CausesOf(id);
    return !causes.empty() &&
           std::ranges::count(unanswered, causes.front()) > 0;
  });
  std::ranges::stable_sort(report.coverage, [](const auto& a, const auto& b) {
    return std::max(a.ms, a.path_ms) > std::max(b.ms, b.path_ms);
  });
}

}  // namespace stepscope
