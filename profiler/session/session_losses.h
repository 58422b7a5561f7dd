// Losses for the Trace about what a Session could not record.
#pragma once

#include <absl/status/status.h>
#include <stepscope/event.h>

#include <cstdint>
#include <string>

namespace stepscope {

// For a source that could not start or stop. `name` is the name of the Loss.
Loss LossOf(const std::string& name, const absl::Status& status);

// Thread `tid` calls Step() and is taken for the training thread, although
// thread `maker_tid` made the Profile.
Loss OtherThreadTrains(int64_t tid, int64_t maker_tid);

// Thread `tid` called Step() in a window that belongs to thread `training_tid`.
Loss StepOnOtherThread(int64_t tid, int64_t training_tid);

}  // namespace stepscope
