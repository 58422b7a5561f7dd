// FakeCollector: a Collector that records its calls. A test can make the n-th
// call fail, make the decoder throw, and add rows.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/collector.h>
#include <stepscope/trace_builder.h>

#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

class FakeCollector : public Collector {
 public:
  // The part that a test reads afterwards. It outlives the collector.
  struct Log {
    std::vector<std::string> calls;  // "start", "sample", "step 3", "stop"
    int starts = 0;
    int stops = 0;
    int arms = 0;
  };
  struct Behaviour {
    std::string name = "fake";
    std::set<int> fail_starts = {};  // which Start() fails, from 1
    std::set<int> fail_stops = {};
    absl::Status error = absl::InternalError("fake: told to fail");
    bool throw_in_decode = false;
    // Called when the recording is decoded.
    std::function<void(TraceBuilder&, const ClockMap&)> rows = {};
  };

  FakeCollector(Behaviour behaviour, std::shared_ptr<Log> log)
      : behaviour_(std::move(behaviour)), log_(std::move(log)) {}

  std::string_view name() const override { return behaviour_.name; }

  void Arm() override { ++log_->arms; }

  absl::Status Start() override {
    log_->calls.push_back("start");
    if (behaviour_.fail_starts.contains(++log_->starts)) {
      return behaviour_.error;
    }
    return absl::OkStatus();
  }

  void OnSampleStep(bool is_recorded) override {
    log_->calls.push_back(is_recorded ? "sample recorded" : "sample");
  }

  void OnStep(int64_t step, int64_t) override {
    log_->calls.push_back("step " + std::to_string(step));
  }

  void Pause() override { log_->calls.push_back("pause"); }
  void Resume() override { log_->calls.push_back("resume"); }

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    log_->calls.push_back("stop");
    if (behaviour_.fail_stops.contains(++log_->stops)) return behaviour_.error;
    return std::make_unique<FakeRecording>(behaviour_);
  }

 private:
  class FakeRecording : public Recording {
   public:
    explicit FakeRecording(Behaviour behaviour)
        : behaviour_(std::move(behaviour)) {}
    void AddTo(TraceBuilder& builder, const ClockMap& clock,
               const SlotLog&) override {
      if (behaviour_.throw_in_decode) throw std::runtime_error("damaged");
      builder.Watch(Kind::kOp);
      if (behaviour_.rows) behaviour_.rows(builder, clock);
    }

   private:
    Behaviour behaviour_;
  };

  Behaviour behaviour_;
  std::shared_ptr<Log> log_;
};

}  // namespace stepscope
