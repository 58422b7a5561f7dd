#include "fakes/fake_nvml.h"

namespace stepscope {

// A handle is its device's number, from 1.
class FakeNvml::Handles : public NvmlApi {
 public:
  explicit Handles(FakeNvml& fake) : fake_(fake) {}

  Handle Find(const DeviceUuid& uuid) override {
    const std::lock_guard lock(fake_.mutex_);
    for (size_t i = 0; i < fake_.devices_.size(); ++i) {
      if (fake_.devices_[i].uuid == uuid) {
        return reinterpret_cast<Handle>(i + 1);
      }
    }
    return nullptr;
  }
  NvmlReading Read(Handle device, bool with_links) override {
    const std::lock_guard lock(fake_.mutex_);
    ++fake_.readings_;
    Device& it = fake_.devices_[reinterpret_cast<size_t>(device) - 1];
    NvmlReading reading = it.reading;
    if (with_links) {
      ++fake_.readings_of_links_;
      it.reading.nvlink_sent_bytes += fake_.bytes_per_reading_;
    } else {
      reading.pcie_sent_bytes_per_s = reading.pcie_received_bytes_per_s = -1;
      reading.nvlink_sent_bytes = reading.nvlink_received_bytes = -1;
    }
    return reading;
  }

 private:
  FakeNvml& fake_;
};

std::unique_ptr<NvmlApi> FakeNvml::Api() {
  return std::make_unique<Handles>(*this);
}

}  // namespace stepscope
