// dependency-stall: the inputs are prepared on a second stream, but the compute
// stream waits for them in the same step, so the two streams never run in
// parallel.
// Fix: prepare the next step's inputs while this step computes.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

// Runs `make` on a separate stream.
class SideStream {
 public:
  explicit SideStream(torch::Device device) : device_(device) {
    if (!device.is_cuda()) return;
    stream_ = c10::impl::VirtualGuardImpl(device.type())
                  .getStreamFromGlobalPool(device);
    ready_.emplace(device.type());
  }
  template <typename Make>
  torch::Tensor Start(Make make) {
    if (!stream_) return make();
    c10::StreamGuard guard(*stream_);
    torch::Tensor made = make();
    ready_->record(*stream_);
    return made;
  }
  // Makes later work on the compute stream wait until `made` is ready.
  void Join(const torch::Tensor& made) {
    if (!stream_) return;
    const c10::Stream compute =
        c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    ready_->block(compute);
    made.record_stream(compute);
  }

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> ready_;
};

void TrainDependencyStall(const Run& run) {
  torch::nn::Sequential network = Mlp({2048, 2048, 2048}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(2048, 2048, 2048, run.device);
  const torch::Tensor mix = torch::randn({2048, 2048}, run.device);
  SideStream side(run.device);
  const auto prepare = [&] { return batch.inputs.matmul(mix).matmul(mix); };

  stepscope::Profile profile(run.options());
  torch::Tensor next = side.Start(prepare);
  for (int step = 0; step < Run::kSteps; ++step) {
    torch::Tensor inputs = run.fixed ? next : side.Start(prepare);
    side.Join(inputs);
    if (run.fixed) next = side.Start(prepare);
    TrainStep(network, sgd, {inputs, batch.targets});
    profile.Step();
  }
}

}  // namespace

extern const Pattern kDependencyStall = {
    .rule = "dependency-stall",
    .habit = "waits for a second stream in the same step",
    .fix = "prepare one step ahead",
    .train = &TrainDependencyStall,
    .needs_gpu = true,
    .also = {{"tensor-cores-idle", "float32", /*when_fixed=*/true}}};

}  // namespace gallery
