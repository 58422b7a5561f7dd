// The NVTX collector switches the hooks on and off. They are never removed.
#include <stepscope/collectors.h>
#include <stepscope/nvtx.h>

#include <string>

#include "nvtx_decode.h"
#include "nvtx_enable.h"
#include "nvtx_hooks.h"
#include "nvtx_names.h"

namespace stepscope {
namespace {

void AddLosses(const NvtxDecodeResult& decoded, TraceBuilder& builder) {
  if (decoded.began_before > 0) {
    builder.Add(
        Loss{.name = "nvtx-range-cut",
             .detail =
                 "NVTX ranges began before the recording; only their ends were "
                 "seen, so they are left out",
             .count = decoded.began_before,
             .severity = Severity::kNote});
  }
  if (decoded.bad_records > 0) {
    builder.Add(Loss{
        .name = "bad-record",
        .detail = "NVTX records were invalid and were left out or cut; this is "
                  "a bug in stepscope, please report it",
        .count = decoded.bad_records,
        .severity = Severity::kError});
  }
  if (NvtxReachesOneBinary()) {
    builder.Add(Loss{
        .name = "nvtx-one-binary",
        .detail = "NVTX ranges of other libraries were not recorded, only "
                  "those of the binary that contains stepscope, because it "
                  "does not export InitializeInjectionNvtx2; link it with "
                  "-Wl,--export-dynamic-symbol=InitializeInjectionNvtx2",
        .count = -1,
        .severity = Severity::kNote});
  }
}

class NvtxRecording : public Recording {
 public:
  void AddTo(TraceBuilder& builder, const ClockMap& clock,
             const SlotLog& slots) override {
    // Uses all names, not only the window's, because most threads are named
    // before it.
    AddLosses(DecodeNvtx(slots, clock, NvtxNames::Get().Snapshot(), builder),
              builder);
  }
};

class NvtxCollector : public Collector {
 public:
  // In the constructor, to be as early as possible: NVTX looks for an injection
  // only at each binary's first call.
  NvtxCollector() { (void)EnableNvtx(); }
  ~NvtxCollector() override { SetNvtxRecording(false); }

  std::string_view name() const override { return "nvtx"; }

  absl::Status Start() override {
    if (absl::Status s = EnableNvtx(); !s.ok()) return s;
    SetNvtxRecording(true);
    return absl::OkStatus();
  }

  void OnStep(int64_t, int64_t) override {}

  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    SetNvtxRecording(false);
    return std::make_unique<NvtxRecording>();
  }
};

}  // namespace

std::unique_ptr<Collector> MakeNvtxCollector() {
  return std::make_unique<NvtxCollector>();
}

}  // namespace stepscope
