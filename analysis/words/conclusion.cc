#include "words/conclusion.h"

#include <algorithm>
#include <set>
#include <utility>

#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A step is healthy if nothing is found and it computes for at least this share
// of its time.
constexpr double kHealthyFrac = 0.5;
// If step times vary by more than kNoisyCov, noise hides gains. Notes that gain
// at least this share of the step (as for medium severity) are then mentioned.
constexpr double kHeldBackFrac = 0.03;
constexpr double kNoisyCov = 0.05;
constexpr size_t kHeldBackShown = 3;
constexpr int64_t kManyRules = 10;
constexpr std::string_view kCaptureIncomplete = "capture-incomplete";

// "zero-grad-kernels (predicted 18.0 ms), ..."; empty if there are none.
std::string HeldBackList(const Report& report) {
  std::vector<std::string> shown;
  for (const Finding* held : HeldBack(report)) {
    if (shown.size() == kHeldBackShown) {
      shown.push_back("...");
      break;
    }
    shown.push_back(held->id + " (" + GainInShort(*held) + ")");
  }
  return Listed(shown);
}

bool SetsBatch(const Plan& plan) {
  return std::ranges::any_of(plan.settings, [](const Setting& setting) {
    return setting.key == "batch_size" || setting.key == "batch_factor";
  });
}

// The number printed before the finding `id`; the id itself if there is none.
std::string NumberText(const Report& report, const std::string& id) {
  const auto done = std::ranges::find(report.findings, id, &Finding::id);
  return done == report.findings.end()
             ? id
             : std::to_string(NumberOf(report, *done));
}

// "1 (loader-bound, at most 41.0 ms) and 3 (...)": the findings of `ids`, with
// the gain of each by itself.
std::string EachInWords(const Report& report,
                        const std::vector<std::string>& ids) {
  std::vector<std::string> texts;
  for (const std::string& id : ids) {
    const auto found = std::ranges::find(report.findings, id, &Finding::id);
    std::string text = NumberText(report, id) + " (" + id;
    if (found != report.findings.end()) text += ", " + GainInShort(*found);
    texts.push_back(text + ")");
  }
  return ListedWithAnd(texts);
}

// The predicted part of the plan. `after`: other changes were named before it.
std::string PredictedInWords(const Report& report, bool after) {
  const Plan& plan = report.plan;
  std::vector<std::string> each;
  for (const std::string& id : plan.ids) each.push_back(NumberText(report, id));
  const std::string numbers = ListedWithAnd(each);
  std::string text = after ? "Then " : "";
  text += plan.ids.size() > 1
              ? (after ? "apply " : "Apply ") + numbers + " together ("
          : after ? numbers + " ("
                  : "Start with " + numbers + " (";
  text += Listed(plan.changes) + "): ";
  text += "predicted " + Number(plan.step_before_ms) + " to " +
          Milliseconds(plan.step_after_ms) + " per step, " +
          Factor(plan.step_before_ms / plan.step_after_ms);
  text += PlanRangeInWords(plan);
  // How much the changes named before really gain is unknown, because they have
  // only bounds. So the prediction is for the program as it was recorded.
  text += after ? ", not counting the changes named before." : ".";
  if (!plan.assumption.empty()) {
    text += " This assumes that " + plan.assumption + ".";
  }
  // Without this sentence a reader would apply the other predicted changes,
  // too.
  std::vector<std::string> others;
  for (const Finding& finding : report.findings) {
    if (!IsNote(finding) && finding.gain_kind == GainKind::kPredicted &&
        std::ranges::count(plan.ids, finding.id) == 0 &&
        std::ranges::count(plan.order, finding.id) == 0) {
      others.push_back(NumberText(report, finding.id));
    }
  }
  if (!others.empty()) {
    const bool one = others.size() == 1;
    text += " After that, " + ListedWithAnd(others) +
            " would add little, whatever " + (one ? "it gains" : "they gain") +
            " alone.";
  }
  if (SetsBatch(plan)) {
    text += " Batch-size gains are normalised to the recorded batch size.";
  }
  return text;
}

// "72 rules found nothing worth changing (13 were skipped, because they cannot
// judge this recording)".
std::string RulesInWords(const Report& report) {
  const auto looked = static_cast<int64_t>(RulesWithoutFinding(report).size());
  const auto skipped = static_cast<int64_t>(report.skipped.size());
  std::string text = Count(looked, "rule") + " found nothing worth changing";
  if (skipped > 0) {
    text += " (" + std::to_string(skipped) +
            (skipped == 1 ? " was skipped, because it cannot"
                          : " were skipped, because they cannot") +
            " judge this recording)";
  }
  return text;
}

// Checks the reasons against a verdict, from the most to the least serious one.
// "Healthy" needs rules that ran, steps that vary little, and a step that
// mostly computes.
std::string VerdictWithoutQuestions(const Report& report) {
  if (std::ranges::any_of(report.findings, ShowsDamage)) {
    return "No verdict: the recording is incomplete (see above).";
  }
  if (RulesWithoutFinding(report).empty()) {
    return "No verdict: no rule had the data it needs.";
  }
  const std::string held = HeldBackList(report);
  if (!held.empty()) {
    return "No verdict: steps vary by " + Percent(report.steps.cov) +
           ", which is too much to confirm these gains: " + held +
           ". Record more steps or use a quieter machine; --verbose shows "
           "these findings.";
  }
  const std::string checks = RulesInWords(report);
  if (report.steps.cov > kNoisyCov) {
    return checks + ", but steps vary by " + Percent(report.steps.cov) +
           ": gains below " + Milliseconds(NoiseOfMeanMs(report.steps)) +
           " per step cannot be distinguished from noise.";
  }
  const auto compute = report.time_split_ms.find("compute");
  if (compute == report.time_split_ms.end() ||
      compute->second <= kHealthyFrac * report.steps.mean_ms) {
    return checks +
           (report.steps.count > 0 ? ", but the step" : ", but the program") +
           " computes for less than half of its time (see below).";
  }
  // Computing takes most of a good step, so it is no open question if no rule
  // shortens it.
  const bool open =
      std::ranges::any_of(report.coverage, [](const CauseAnswer& answer) {
        return !answer.why.empty() && answer.cause != "compute";
      });
  // Without steps it is unknown what recurs, so the program is not called
  // healthy.
  return (open || report.steps.count == 0 ? "" : "Healthy: ") + checks + ".";
}

}  // namespace

std::vector<std::string> RulesWithoutFinding(const Report& report) {
  std::set<std::string> ids(report.clean.begin(), report.clean.end());
  for (const CauseAnswer& answer : report.coverage) {
    ids.insert(answer.looked.begin(), answer.looked.end());
  }
  return {ids.begin(), ids.end()};
}

std::vector<const Finding*> HeldBack(const Report& report) {
  if (report.steps.cov <= kNoisyCov) return {};
  std::vector<std::pair<double, const Finding*>> held;
  for (const Finding& finding : report.findings) {
    const double ms = LikelyMs(finding);
    // On a CPU, small-batch is a note however steady the steps are.
    const bool always = finding.id == "small-batch" && !report.has_gpu;
    if (!IsNote(finding) || always || finding.gain_kind == GainKind::kNone ||
        ms < kHeldBackFrac * BaselineMs(report, finding)) {
      continue;
    }
    held.push_back({-ms, &finding});
  }
  std::ranges::stable_sort(held, {}, &std::pair<double, const Finding*>::first);
  std::vector<const Finding*> findings;
  findings.reserve(held.size());
  for (const auto& [ms, finding] : held) findings.push_back(finding);
  return findings;
}

std::string HeldBackInWords(const Report& report) {
  const std::string held = HeldBackList(report);
  if (held.empty()) return "";
  return "Held back, because steps vary by " + Percent(report.steps.cov) +
         ": " + held + ". Record more steps to confirm.";
}

std::string MissingSizesInWords(const Report& report) {
  const auto count = std::ranges::count_if(report.skipped, &LacksSizes);
  // A few rules need sizes of single ops, which any recording may lack.
  if (count < kManyRules) return "";
  return "The recording has no sizes of tensors, which " +
         Count(count, "rule") +
         " need: record with record_shapes=True to let them look, too.";
}

std::string PlanRangeInWords(const Plan& plan) {
  if (plan.low_ms <= 0) return "";
  const std::string least = Factor(plan.step_before_ms / plan.high_ms);
  const std::string most = Factor(plan.step_before_ms / plan.low_ms);
  if (least == most) return "";
  return (plan.pairs > 0 ? " (likely " : " (roughly ") + least + " to " + most +
         ")";
}

std::string PlanInWords(const Report& report) {
  const Plan& plan = report.plan;
  const bool predicted = !plan.ids.empty() && plan.step_after_ms > 0;
  std::vector<std::string> before, after;
  bool seen = false;
  for (const std::string& id : plan.order) {
    if (std::ranges::count(plan.ids, id) > 0) {
      seen = true;
    } else {
      (seen ? after : before).push_back(id);
    }
  }
  std::string text;
  if (!before.empty()) {
    const bool bounds = std::ranges::all_of(before, [&](const auto& id) {
      return std::ranges::count(plan.at_most, id) > 0;
    });
    text = "Start with " + EachInWords(report, before) +
           (bounds ? "; the actual gain cannot be predicted, so measure it."
                   : "; these gains do not add up: measure after each change.");
  }
  if (predicted) {
    text +=
        (text.empty() ? "" : " ") + PredictedInWords(report, !before.empty());
  }
  if (!after.empty()) {
    text += (text.empty() ? "Try " : " Then try ") +
            EachInWords(report, after) + ".";
  }
  return text;
}

std::string EvidenceBesideLosses(const Report& report, const Finding& finding) {
  std::string text = finding.evidence;
  if (finding.id != kCaptureIncomplete) return text;
  bool any = false;
  for (const Loss& loss : report.losses) {
    const std::string sentence = LossInWords(loss);
    const size_t at = text.find(sentence);
    if (loss.severity == Severity::kNote || at == std::string::npos) continue;
    text.erase(at, sentence.size() + 1);
    any = true;
  }
  return (any ? "See what is missing, at the top. " : "") + text;
}

std::string NoStepsInWords(const Report& report) {
  std::string text =
      report.steps.mean_ms > 0
          ? "No steps were found, so the whole recording counts as one."
          : "No steps were found, so there are no times per step.";
  if (std::ranges::count(report.findings, kCaptureIncomplete, &Finding::id) > 0)
    return text;
  return text + " Call Step() once per iteration (prof.step() in Python).";
}

bool FindingSaysNoSteps(const Report& report) {
  return std::ranges::any_of(report.findings, [](const Finding& finding) {
    return finding.id == kCaptureIncomplete &&
           finding.evidence.find(kNoStepMarks) != std::string::npos;
  });
}

std::string VerdictInWords(const Report& report) {
  const std::string verdict = VerdictWithoutQuestions(report);
  return std::ranges::any_of(report.findings, &IsQuestion)
             ? verdict + " One question is open (cores-idle)."
             : verdict;
}

std::vector<std::string> UnansweredInWords(const Report& report) {
  std::vector<std::pair<std::string, std::string>> lines;  // what, why
  for (const CauseAnswer& answer : report.coverage) {
    if (answer.why.empty()) continue;
    const double step_ms = std::max(report.steps.mean_ms, 1e-9);
    std::string what = CauseInWords(answer.cause, report.has_gpu) + " " +
                       Milliseconds(answer.ms) + " (" +
                       Percent(answer.ms / step_ms);
    // Host work that overlaps device work takes more time on the critical path
    // than in the time split, which shows only idle time.
    if (answer.path_ms > 1.5 * answer.ms) {
      what += "; " + Milliseconds(answer.path_ms) + " of the critical path";
    }
    what += ")";
    // Causes that share a reason share a line.
    const auto same = std::ranges::find(
        lines, answer.why, &std::pair<std::string, std::string>::second);
    if (same == lines.end()) {
      lines.push_back({what, answer.why});
    } else {
      same->first += ", " + what;
    }
  }
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (auto& [what, why] : lines) {
    what.append(": ").append(why);
    texts.push_back(std::move(what));
  }
  return texts;
}

}  // namespace stepscope
