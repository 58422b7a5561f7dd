// What a Session finds missing, as Losses of the Trace.
#pragma once

#include <absl/status/status.h>
#include <stepscope/event.h>

#include <cstdint>
#include <string>

namespace stepscope {

// A source could not start or stop; `name` is the Loss's.
Loss LossOf(const std::string& name, const absl::Status& status);

// Thread `tid` steps and is taken for the one that trains, although `maker_tid`
// made the Profile.
Loss OtherThreadTrains(int64_t tid, int64_t maker_tid);

// Thread `tid` stepped in a window of the thread `training_tid`.
Loss StepOnOtherThread(int64_t tid, int64_t training_tid);

}  // namespace stepscope
