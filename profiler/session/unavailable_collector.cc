#include <stepscope/unavailable_collector.h>

#include <utility>

namespace stepscope {
namespace {

class UnavailableCollector : public Collector {
 public:
  UnavailableCollector(std::string_view name, std::string reason)
      : name_(name), reason_(std::move(reason)) {}

  std::string_view name() const override { return name_; }
  absl::Status Start() override { return absl::UnavailableError(reason_); }
  void OnStep(int64_t, int64_t) override {}
  absl::StatusOr<std::unique_ptr<Recording>> Stop() override {
    return absl::FailedPreconditionError(reason_);
  }

 private:
  const std::string_view name_;
  const std::string reason_;
};

}  // namespace

std::unique_ptr<Collector> MakeUnavailableCollector(std::string_view name,
                                                    std::string reason) {
  return std::make_unique<UnavailableCollector>(name, std::move(reason));
}

}  // namespace stepscope
