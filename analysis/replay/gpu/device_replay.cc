#include "replay/gpu/device_replay.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "replay/gpu/device_run.h"

namespace stepscope {
namespace {

// Limits of the checks, as shares; device_replay.h explains them. Of 18 public
// recordings, 16 have a first error of at most 0.1 %; their second errors are
// 0.1 to 2.8 %.
constexpr double kNoEditLimit = 0.03;
constexpr double kHostOnlyLimit = 0.05;
// With several steps, one that takes 1.2 times the usual time may be a warm-up
// step (steps.cc). A single step is a warm-up step if one-off work takes an
// equally large share of it.
constexpr double kOneOffLimit = 1 - 1 / 1.2;
constexpr double kUnmatchedLimit = 0.05;

std::string Percents(double frac) {
  return std::to_string(std::lround(100 * std::abs(frac))) + " %";
}

}  // namespace

DeviceReplay::DeviceReplay(DeviceProgram program)
    : program_(std::move(program)), unedited_(Unedited(program_)) {
  Check();
}

void DeviceReplay::Check() {
  if (program_.hosts.empty() || program_.measured_ns <= 0) {
    check_.why_not = "no launches were recorded inside the steps";
    return;
  }
  recorded_ns_ = unchanged_ns_ = Simulate(program_, unedited_).mean_ns;
  check_.no_edit_error =
      (recorded_ns_ - program_.measured_ns) / program_.measured_ns;
  const double limit = Simulate(program_, HostOnly(unedited_)).mean_ns;
  if (program_.host_only_ns > 0) {
    check_.limit_error =
        (limit - program_.host_only_ns) / program_.host_only_ns;
  }
  if (program_.steady.size() == 1 &&
      program_.one_off_ns > kOneOffLimit * program_.measured_ns) {
    check_.why_not =
        "the only step spends " +
        Percents(program_.one_off_ns / program_.measured_ns) +
        " of its time on one-off work: loading kernels, compiling, first "
        "allocations";
  } else if (program_.unmatched_frac > kUnmatchedLimit) {
    check_.why_not = "the launch of " + Percents(program_.unmatched_frac) +
                     " of the GPU's activities was not recorded";
  } else if (std::abs(check_.no_edit_error) > kNoEditLimit) {
    check_.why_not =
        std::string(program_.steady.size() == 1
                        ? "replaying the only step as one of several missed its"
                        : "replaying the recorded steps unchanged missed "
                          "their") +
        " measured time by " + Percents(check_.no_edit_error);
  } else if (std::abs(check_.limit_error) > kHostOnlyLimit) {
    check_.why_not =
        "replaying the steps without the GPU's time missed the host's own "
        "time by " +
        Percents(check_.limit_error);
  }
  check_.valid = check_.why_not.empty();
  if (!check_.valid) return;
  unedited_ = WithoutRecorder(program_, unedited_);
  unchanged_ns_ = Simulate(program_, unedited_).mean_ns;
}

double DeviceReplay::StepNs(const Edit& edit,
                            const ReplayParameters& parameters) const {
  if (unchanged_ns_ > 0 && edit == Edit()) return unchanged_ns_;
  Apply(edit, parameters, program_, unedited_, scratch_);
  const double ns = Simulate(program_, scratch_).mean_ns / edit.batch;
  double period_ns = BatchPeriodNs(edit, parameters, program_);
  // The recorded workers kept up with the recorded steps, so they never make
  // the step longer than the unchanged one.
  if (edit.workers < 0) period_ns = std::min(period_ns, unchanged_ns_);
  return std::max(ns, period_ns);
}

}  // namespace stepscope
