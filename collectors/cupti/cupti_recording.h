// CuptiRecording: one window's CUPTI buffers, not yet decoded.
#pragma once

#include <stepscope/collector.h>
#include <stepscope/trace_builder.h>

#include <memory>
#include <vector>

#include "api/cuda_driver.h"
#include "buffer_pool.h"
#include "counters/counter_sampler.h"
#include "cupti_attachment.h"
#include "cupti_times.h"

namespace stepscope {

class CuptiRecording : public Recording {
 public:
  struct Parts {
    std::shared_ptr<CuptiAttachment> attachment;
    // Keeps hardware counters claimed until the names in the records are no
    // longer needed, because releasing them may detach CUPTI. Null: nothing was
    // counted.
    std::shared_ptr<CounterSampler> sampler;
    std::shared_ptr<CounterWindow> counters;
    BufferPool::Window window;
    CuptiReading begin;
    CuptiReading end;
    std::vector<DeviceLimits> devices;
    std::vector<DeviceSample> samples;  // times are already since the epoch
    std::vector<Kind> watched;
    std::vector<Loss> losses;
    int64_t dropped_records = 0;  // by CUPTI's own count
    bool all_calls = false;
  };
  explicit CuptiRecording(Parts parts);
  ~CuptiRecording() override;  // returns the buffers to the pool

  void AddTo(TraceBuilder& builder, const ClockMap& clock,
             const SlotLog& slots) override;

 private:
  void Decode(TraceBuilder& builder, const ClockMap& clock);
  void AddWindowLosses(TraceBuilder& builder) const;
  void AddCounters(const CuptiTimes& times, TraceBuilder& builder);

  Parts parts_;
};

}  // namespace stepscope
