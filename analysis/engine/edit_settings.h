// Converts between an Edit and its names: changes in words for people, and
// settings by key for programs.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "edit/edit.h"

namespace stepscope {

class Replay;
struct AnalysisContext;

// The changes of `edit` that have a name: "1 loader worker", "batch x 2",
// "fused attention". Empty where it only names events, such as kernels that get
// faster.
std::vector<std::string> ChangesInWords(const Edit& edit);

// What the change of rule `id` does, in the user's terms, for edits without a
// name: "uploads that do not block"; the id itself for a rule without such
// words.
std::string ChangeOfRule(std::string_view id);

// The largest batch size of all loaders in samples; -1 if none is known.
int64_t BatchSize(const Trace& trace);

// The settings that `edit` changes; the keys are in docs/json.md. Changes to
// single activities are not settings. `batch_size` is the recorded one, -1 if
// unknown.
std::vector<Setting> SettingsOf(const Edit& edit, int64_t batch_size);

// The edit that applies `setting` to the run `before`: Edit() if the run
// already has it, nullopt if replay cannot express it. For runs with a GPU,
// only the number of loader workers can be expressed here. Other settings
// change activities that only findings name, so WhatIf uses the edits of the
// findings.
std::optional<Edit> EditOf(const AnalysisContext& before,
                           const Setting& setting);

// True if the replayed steps contain what `edit`, made by EditOf(), changes.
// For work that occurs only in other steps, such as validation, or that was not
// recorded, such as the loading done by workers, replay would predict no gain.
bool CanReplay(const Replay& replay, const Edit& edit);

}  // namespace stepscope
