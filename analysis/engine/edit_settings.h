// An Edit told to those who make the change, people and programs, and made of
// what these have set.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "edit/edit.h"

namespace stepscope {

struct AnalysisContext;

// "1 loader worker", "batch x 2". `steps` is the number of steps that `edit`
// was made for.
std::vector<std::string> ChangesInWords(const Edit& edit, size_t steps);

// The largest batch any loader makes; -1 if none tells.
int64_t BatchSize(const Trace& trace);

// What `edit` sets. Changes to single pieces of work are no settings.
std::vector<Setting> SettingsOf(const Edit& edit, int64_t batch_size);

// What `setting` changes about the run `before`: Edit() if that has it already,
// nothing if no edit is known that does it. Of a run with a GPU only the
// workers are known; all else depends on what its findings saw.
std::optional<Edit> EditOf(const AnalysisContext& before,
                           const Setting& setting);

}  // namespace stepscope
