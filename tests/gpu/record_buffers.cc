#include "gpu/record_buffers.h"

#include <memory>
#include <utility>

#include "cupti_collector.h"
#include "gpu/recorded_cupti.h"

namespace stepscope {

absl::Status RecordBuffers(const std::function<void()>& work,
                           const std::string& path) {
  SavingCupti* saving = nullptr;  // owned by the collector
  const auto collector = MakeCuptiCollector(
      {.detach_at_end = false},
      {.driver = [] { return LoadCudaDriver(); },
       .cupti = [&]() -> absl::StatusOr<std::unique_ptr<CuptiApi>> {
         absl::StatusOr<std::unique_ptr<CuptiApi>> real = LoadCupti();
         if (!real.ok()) return real.status();
         auto made = std::make_unique<SavingCupti>(*std::move(real));
         saving = made.get();
         return made;
       }});
  if (absl::Status s = collector->Start(); !s.ok()) return s;
  work();
  const auto recording = collector->Stop();
  if (!recording.ok()) return recording.status();
  return WriteRecorded(saving->Recorded(), path);
}

}  // namespace stepscope
