// A bench on which the program that only pretends to train is measured.
#pragma once

#include <string>

#include "measure/bench.h"
#include "samples/temporary_folder.h"

namespace climb {

class FakeBench {
 public:
  explicit FakeBench(measure::Settings always = {},
                     std::chrono::seconds limit = std::chrono::hours(1))
      : bench_(*measure::Bench::Open(
            *measure::Workload::Find(FAKE_TRAINING, std::move(always)),
            {.folder = folder_.path() + "/work",
             .limit = limit,
             .window = {},
             .say = [this](const std::string&) { ++runs_; }})) {}

  measure::Bench& bench() { return bench_; }
  int runs() const { return runs_; }

 private:
  resnet::TemporaryFolder folder_;
  int runs_ = 0;
  measure::Bench bench_;
};

inline measure::Settings Of(const char* text) {
  return *measure::Settings::Parse(text);
}

}  // namespace climb
