// Learner: the network and its optimizer, and one training step or validation
// of a batch. For one thread.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>

#include "flags/options.h"
#include "image_batches.h"
#include "model.h"
#include "precision.h"
#include "sgd.h"
#include "step_graph.h"

namespace resnet {

class Learner {
 public:
  // The weights depend only on options.seed. With `graph`, steps are captured
  // and replayed, all on the stream that is current during construction (see
  // UseSideStream).
  Learner(const Options& options, int classes, torch::Device device,
          std::unique_ptr<CapturedWork> graph = nullptr);

  // Runs one training step. Returns its loss, still on the device, so that the
  // caller decides when to wait for it.
  torch::Tensor Step(const Batch& batch);
  // Returns the loss of a batch in evaluation mode, without gradients unless
  // options.validate_mode requests the mistake of keeping them.
  torch::Tensor Validate(const Batch& batch);

  ResNet& model() { return model_; }

 private:
  Batch ToDevice(const Batch& batch) const;
  torch::Tensor Loss(const Batch& batch);
  torch::Tensor AddGradients(const Batch& batch);
  void Update();

  Options options_;
  torch::Device device_;
  int classes_;
  ResNet model_;
  Sgd sgd_;
  std::optional<LossScaler> scaler_;
  std::optional<StepGraph> graph_;
  torch::Tensor mean_;  // of bytes, [1, 3, 1, 1]
  torch::Tensor inverse_std_;
};

}  // namespace resnet
