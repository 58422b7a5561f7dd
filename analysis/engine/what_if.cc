// WhatIf: analyses a recording once and answers any number of questions from
// it; Compare() asks the same replay.
#include <stepscope/what_if.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "engine/edit_settings.h"
#include "engine/report_of.h"
#include "engine/sizing.h"

namespace stepscope {
namespace {

// How the rules about `setting` name their change (Rule::change). Empty for
// settings that findings list in Finding::settings.
std::string_view ChangeOfSetting(const Setting& setting) {
  if (setting == Setting{"optimizer_step", std::string("fused")}) {
    return "fused optimizer step";
  }
  if (setting == Setting{"memory_format", std::string("channels_last")}) {
    return "channels-last layout";
  }
  return "";
}

// True if following `finding` makes exactly the change `setting`.
bool Makes(const Finding& finding, const Setting& setting) {
  if (!finding.settings.empty()) {
    return finding.settings.size() == 1 && finding.settings[0] == setting;
  }
  const std::string_view change = ChangeOfSetting(setting);
  return !change.empty() && ChangeOfRule(finding.id) == change;
}

}  // namespace

// The analysis of the recording, made once. Each prediction is only a replay.
struct WhatIf::Recording {
  explicit Recording(const Trace& trace) : context(trace) {
    if (context.steps.empty()) {
      why_not = "no steps were found";
    } else if (!context.replay.check().valid) {
      why_not = context.replay.check().why_not;
    }
    if (!why_not.empty()) return;
    EditsById edits;
    const Report report = ReportOf(context, &edits);
    for (const Finding& finding : report.findings) {
      const auto known = edits.find(finding.id);
      if (known == edits.end() || known->second.empty()) continue;
      // A bound is not a prediction, so Predict() returns nullopt for such a
      // finding.
      if (finding.gain_kind == GainKind::kBound) continue;
      advised.emplace(finding.id, std::move(known->second.front()));
      if (std::ranges::count(report.findings, finding.id, &Finding::id) == 1) {
        findings.push_back(finding);
      }
    }
  }

  // Returns the edit for `setting`; nullopt if replay cannot express it. With a
  // GPU, it is the edit of the finding that advises the setting, because only
  // that names the activities it changes. Edit() if that finding is among
  // `followed`, so that its change is already made.
  std::optional<Edit> EditFor(const Setting& setting,
                              const std::vector<std::string>& followed) const {
    std::optional<Edit> edit = EditOf(context, setting);
    if (edit && CanReplay(context.replay, *edit)) return edit;
    if (!context.has_gpu) return std::nullopt;
    for (const Finding& finding : findings) {
      if (!Makes(finding, setting)) continue;
      return std::ranges::count(followed, finding.id) > 0
                 ? Edit()
                 : advised.at(finding.id);
    }
    return std::nullopt;
  }

  // The finding that advises exactly this change; nullptr if there is none.
  const Finding* AdvisedAs(const Change& change) const {
    if (change.findings.size() + change.settings.size() != 1) return nullptr;
    const auto one =
        std::ranges::find_if(findings, [&](const Finding& finding) {
          return change.settings.empty() ? finding.id == change.findings[0]
                                         : Makes(finding, change.settings[0]);
        });
    return one == findings.end() ? nullptr : &*one;
  }

  const AnalysisContext context;
  std::string why_not;
  std::map<std::string, Edit> advised;  // by finding
  std::vector<Finding> findings;  // those of `advised` with an id of their own
};

WhatIf::WhatIf(const Trace& trace)
    : recording_(std::make_unique<const Recording>(trace)) {}
WhatIf::~WhatIf() = default;
WhatIf::WhatIf(WhatIf&&) noexcept = default;
WhatIf& WhatIf::operator=(WhatIf&&) noexcept = default;

const std::string& WhatIf::why_not() const { return recording_->why_not; }

std::optional<Gain> WhatIf::Predict(const Change& change) const {
  if (!recording_->why_not.empty()) return std::nullopt;
  Edit all;
  for (const std::string& id : change.findings) {
    const auto known = recording_->advised.find(id);
    if (known == recording_->advised.end()) return std::nullopt;
    all = Combine(std::move(all), known->second);
  }
  for (const Setting& setting : change.settings) {
    const std::optional<Edit> edit =
        recording_->EditFor(setting, change.findings);
    if (!edit) return std::nullopt;
    all = Combine(std::move(all), *edit);
  }
  // The run has these settings already.
  if (all == Edit()) return Gain();
  // The rule knows more of its change's range than replay does.
  const Finding* advised = recording_->AdvisedAs(change);
  if (advised != nullptr && advised->baseline_ms <= 0) return advised->gain;
  return PredictDifference(recording_->context, all);
}

}  // namespace stepscope
