#include "learner.h"

#include <stepscope/range.h>

#include <iostream>
#include <utility>

#include "clipping.h"
#include "data/transforms.h"

namespace resnet {
namespace {

constexpr double kLargestNorm = 1;

ResNet MakeNetwork(const Options& options, int classes, torch::Device device) {
  torch::manual_seed(options.seed);
  ResNet model(options.model, classes,
               ResNetImpl::Extras{.conv_bias = options.conv_bias,
                                  .recompute = options.recompute});
  model->to(device);
  if (options.channels_last) MakeChannelsLast(*model);
  model->train();
  return model;
}

torch::Tensor PerChannel(const float (&values)[3], torch::Device device) {
  return torch::tensor({values[0], values[1], values[2]}, device)
      .view({1, 3, 1, 1});
}

// Returns one row per picture with a 1 at its class, on the device of `labels`.
torch::Tensor OneHot(const torch::Tensor& labels, int classes) {
  return torch::zeros({labels.size(0), classes}, labels.device())
      .scatter_(1, labels.unsqueeze(1), 1.0);
}

}  // namespace

Learner::Learner(const Options& options, int classes, torch::Device device,
                 std::unique_ptr<CapturedWork> graph)
    : options_(options),
      device_(device),
      classes_(classes),
      model_(MakeNetwork(options, classes, device)),
      sgd_(model_->parameters(), options.sgd, options.lr),
      mean_(PerChannel(kMean, device) * 255),
      inverse_std_(1 / (PerChannel(kStd, device) * 255)) {
  if (options.fp16) scaler_.emplace(device);
  if (graph) graph_.emplace(std::move(graph));
}

Batch Learner::ToDevice(const Batch& batch) const {
  bool overlap = options_.pinned;  // a copy from other memory blocks anyway
  torch::Tensor targets =
      options_.host_tensors ? OneHot(batch.labels, classes_) : batch.labels;
  Batch moved{batch.images.to(device_, overlap), targets.to(device_, overlap)};
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
  Autocast autocast(device_.type(), AutocastType(options_));
  torch::Tensor scores = model_->forward(batch.images);
  if (options_.print_tensor) std::cerr << scores[0] << "\n";
  return torch::nn::functional::cross_entropy(scores, batch.labels);
}

// Runs the passes over a batch, or over each of its parts. Returns the loss.
torch::Tensor Learner::AddGradients(const Batch& batch) {
  torch::Tensor sum;
  int64_t parts = options_.accumulate;
  std::vector<torch::Tensor> images = batch.images.chunk(parts);
  std::vector<torch::Tensor> labels = batch.labels.chunk(parts);
  for (size_t i = 0; i < images.size(); ++i) {
    torch::Tensor loss;
    {
      stepscope::PhaseRange phase(stepscope::Phase::kForward);
      loss = Loss({images[i], labels[i]});
      // cross_entropy() is the mean over a part. Divided by the number of
      // parts, the gradients add up to those of the mean over the batch.
      if (parts > 1) loss = loss / static_cast<double>(parts);
    }
    {
      stepscope::PhaseRange phase(stepscope::Phase::kBackward);
      (scaler_ ? scaler_->Scale(loss) : loss).backward();
    }
    // Without detach(), the sum would keep the graphs of all parts.
    loss = loss.detach();
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

void Learner::Update() {
  stepscope::PhaseRange phase(stepscope::Phase::kOptimizer);
  torch::Tensor skip;
  // Unscale first, because the limit of the norm is meant for unscaled
  // gradients.
  if (scaler_) skip = scaler_->Unscale(sgd_.Gradients());
  if (options_.clip == Clip::kOnDevice) {
    ClipOnDevice(sgd_.Gradients(), kLargestNorm);
  } else if (options_.clip == Clip::kReadBack) {
    torch::nn::utils::clip_grad_norm_(model_->parameters(), kLargestNorm);
  }
  // Named as torch.profiler names Python's optimizers, because the analysis
  // recognises an update by this name.
  {
    stepscope::UserRange range("Optimizer.step#SGD.step");
    sgd_.Step(skip);
  }
  if (scaler_) scaler_->Update();
  stepscope::UserRange range("Optimizer.zero_grad#SGD.zero_grad");
  sgd_.ZeroGrad(options_.set_to_none);
}

torch::Tensor Learner::Step(const Batch& batch) {
  Batch moved;
  {
    stepscope::PhaseRange phase(stepscope::Phase::kData);
    moved = ToDevice(batch);
  }
  auto train = [this](const Batch& on_device) {
    torch::Tensor loss = AddGradients(on_device);
    Update();
    return loss;
  };
  return graph_ ? graph_->Run(moved, train) : train(moved);
}

torch::Tensor Learner::Validate(const Batch& batch) {
  c10::InferenceMode inference(options_.validate_mode ==
                               ValidateMode::kInference);
  torch::AutoGradMode record(options_.validate_mode == ValidateMode::kGrad);
  model_->eval();
  torch::Tensor loss = Loss(ToDevice(batch)).detach();
  model_->train();
  return loss;
}

}  // namespace resnet
