// The functions of Profile that a program calls. No error inside them may stop
// the training.
#include <stepscope/profile.h>

#include <utility>

#include "profile_state.h"

namespace stepscope {
namespace {

constexpr char kUnprofiled[] = "; training goes on unprofiled";

}  // namespace

Profile::Profile(ProfileOptions options,
                 ProfileParts (*parts)(const ProfileOptions&)) noexcept {
  try {
    state_ = std::make_unique<State>();
    state_->errors = std::make_shared<Errors>("");
  } catch (...) {
    Say("out of memory; training goes on unprofiled");
    state_.reset();
    return;
  }
  // A copy, because Start() replaces `errors` by one that names the rank.
  const std::shared_ptr<Errors> before = state_->errors;
  before->Guard(
      "cannot start profiling",
      [&] {
        ProfileParts made = parts(options);
        state_->Start(std::move(options), std::move(made));
      },
      kUnprofiled);
  active_ = state_->background != nullptr;
  if (!active_) {
    state_->errors->Guard(
        "cannot stop profiling", [&] { state_->session.reset(); }, kUnprofiled);
  }
}

void Profile::EndStep() noexcept {
  State& state = *state_;
  const bool due =
      state.watch != nullptr && state.watch->Step(state.Undisturbed());
  const bool ends = state.IsAskedToEnd();
  // Almost every step returns here, so this is the whole cost of an unrecorded
  // step.
  if (!state.recording && !due && !ends && !state.IsStallDue()) return;
  active_ = false;  // set again below if the step ends without an error
  state.errors->Guard(
      "profiling stopped",
      [&] {
        if (due) state.DoChores();
        if (state.recording) {
          state.EndSessionStep();
        } else if (state.IsStallDue()) {
          state.EndStallStep();
        }
        active_ = state.recording || state.watch != nullptr;
      },
      kUnprofiled);
  if (ends) (void)Finish();
}

void Profile::BeginStep() noexcept {
  if (!active_ || !state_->marked_steps) return;
  active_ = false;  // set again below if no error occurs
  state_->errors->Guard(
      "profiling stopped",
      [&] {
        if (state_->recording) state_->session->BeginStep();
        if (state_->watch != nullptr) state_->watch->Restart();
        active_ = true;
      },
      kUnprofiled);
}

absl::Status Profile::Finish() noexcept {
  if (state_ == nullptr) {
    return absl::ResourceExhaustedError("out of memory");
  }
  State& state = *state_;
  active_ = false;
  if (state.background != nullptr && !state.finished &&
      !state.session->in_forked_child()) {
    state.finished = true;
    state.errors->Guard(
        "cannot end the profile",
        [&] {
          if (state.IsAskedToEnd()) state.HurryUp();
          state.EndLoop();
          state.EndRun();
          state.WaitForFiles();
        },
        kUnprofiled);
    // Ends the program if a signal has asked for it.
    if (state.finish_ends_program || !state.IsAskedToEnd()) {
      state.signals.reset();
    }
  }
  return status();
}

Profile::~Profile() {
  if (state_ == nullptr) return;
  if (state_->session != nullptr && state_->session->in_forked_child()) {
    // The thread, locks and files belong to the parent.
    (void)state_.release();
    return;
  }
  (void)Finish();
}

bool Profile::is_ending() const noexcept {
  return state_ != nullptr && state_->IsAskedToEnd();
}

absl::Status Profile::status() const noexcept {
  if (state_ == nullptr) {
    return absl::ResourceExhaustedError("out of memory");
  }
  // The parent's other threads may have held the lock when it forked.
  if (state_->session != nullptr && state_->session->in_forked_child()) {
    return absl::OkStatus();
  }
  return state_->errors->first();
}

}  // namespace stepscope
