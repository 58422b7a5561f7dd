#include "learner.h"

#include <stepscope/range.h>

#include <optional>

#include "device.h"
#include "transforms.h"

namespace resnet {
namespace {

ResNet MakeNetwork(const Options& options, int classes, torch::Device device) {
  torch::manual_seed(options.seed);
  ResNet model(options.model, classes);
  model->to(device);
  if (options.channels_last) MakeChannelsLast(*model);
  model->train();
  return model;
}

torch::Tensor PerChannel(const float (&values)[3], torch::Device device) {
  return torch::tensor({values[0], values[1], values[2]}, device)
      .view({1, 3, 1, 1});
}

}  // namespace

Learner::Learner(const Options& options, int classes, torch::Device device)
    : options_(options),
      device_(device),
      model_(MakeNetwork(options, classes, device)),
      sgd_(model_->parameters(),
           torch::optim::SGDOptions(options.lr).momentum(0.9)),
      mean_(PerChannel(kMean, device) * 255),
      inverse_std_(1 / (PerChannel(kStd, device) * 255)) {}

Batch Learner::ToDevice(const Batch& batch) const {
  bool overlap = options_.pinned;  // a copy from other memory blocks anyway
  Batch moved{batch.images.to(device_, overlap),
              batch.labels.to(device_, overlap)};
  if (options_.uint8) {
    moved.images =
        moved.images.to(torch::kFloat).sub_(mean_).mul_(inverse_std_);
  }
  if (options_.channels_last) {
    moved.images = moved.images.contiguous(torch::MemoryFormat::ChannelsLast);
  }
  return moved;
}

torch::Tensor Learner::Loss(const Batch& batch) {
  Autocast autocast(device_.type(), options_.bf16);
  return torch::nn::functional::cross_entropy(model_->forward(batch.images),
                                              batch.labels);
}

torch::Tensor Learner::Step(const Batch& batch) {
  Batch moved;
  {
    stepscope::PhaseRange phase(stepscope::Phase::kData);
    moved = ToDevice(batch);
  }
  torch::Tensor loss;
  {
    stepscope::PhaseRange phase(stepscope::Phase::kForward);
    loss = Loss(moved);
  }
  {
    stepscope::PhaseRange phase(stepscope::Phase::kBackward);
    loss.backward();
  }
  {
    stepscope::PhaseRange phase(stepscope::Phase::kOptimizer);
    {
      stepscope::UserRange range("Optimizer.step#SGD.step");
      sgd_.step();
    }
    stepscope::UserRange range("Optimizer.zero_grad#SGD.zero_grad");
    sgd_.zero_grad(options_.set_to_none);
  }
  return loss.detach();
}

torch::Tensor Learner::Validate(const Batch& batch) {
  std::optional<torch::NoGradGuard> no_grad;
  if (!options_.validate_grad) no_grad.emplace();
  model_->eval();
  torch::Tensor loss = Loss(ToDevice(batch)).detach();
  model_->train();
  return loss;
}

}  // namespace resnet
