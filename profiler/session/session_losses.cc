#include "session_losses.h"

namespace stepscope {

// The count is -1, because nobody knows how many events the source would have
// recorded.
Loss LossOf(const std::string& name, const absl::Status& status) {
  // A source that does not exist here is a note; a source that fails is a
  // warning.
  return {.name = name,
          .detail = std::string(status.message()),
          .count = -1,
          .severity = absl::IsUnavailable(status) ? Severity::kNote
                                                  : Severity::kWarning};
}

Loss OtherThreadTrains(int64_t tid, int64_t maker_tid) {
  return {.name = "training-thread",
          .detail = "Step() is called on thread " + std::to_string(tid) +
                    ", but the Profile was created on thread " +
                    std::to_string(maker_tid) +
                    ". The report takes the thread that calls Step() for the "
                    "training thread; if that is wrong, set training_tid",
          .count = 1,
          .severity = Severity::kWarning};
}

Loss StepOnOtherThread(int64_t tid, int64_t training_tid) {
  return {.name = "step-threads",
          .detail = "Step() was called on thread " + std::to_string(tid) +
                    ", but thread " + std::to_string(training_tid) +
                    " was recorded as the training thread, so a step is the "
                    "time between any two calls; call Step() on one thread "
                    "only, or set training_tid",
          .count = 1,
          .severity = Severity::kError};
}

}  // namespace stepscope
