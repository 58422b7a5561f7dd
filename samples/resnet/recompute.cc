#include "recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "precision.h"

namespace resnet {
namespace {

using torch::autograd::AutogradContext;

// The data for the second run besides the input, in a form that autograd can
// carry.
struct Replay : torch::CustomClassHolder {
  std::shared_ptr<torch::nn::Module> module;
  Section section;
  std::optional<torch::ScalarType> autocast;
};

// Norms have already counted the batch in the first run. While this object
// lives, they use the batch's own statistics and leave the running ones
// unchanged.
class FrozenStatistics {
 public:
  explicit FrozenStatistics(torch::nn::Module& module) {
    if (!module.is_training()) return;
    for (const auto& part : module.modules()) {
      auto* norm = part->as<torch::nn::BatchNorm2dImpl>();
      if (norm == nullptr) continue;
      norms_.push_back({norm, norm->options});
      // Without tracking, LibTorch's forward() uses the batch's own statistics,
      // but it still passes the running ones on. Momentum 0 keeps them
      // unchanged.
      norm->options.track_running_stats(false).momentum(0.0);
    }
  }
  ~FrozenStatistics() {
    for (auto& [norm, options] : norms_) norm->options = options;
  }
  FrozenStatistics(const FrozenStatistics&) = delete;
  FrozenStatistics& operator=(const FrozenStatistics&) = delete;

 private:
  std::vector<
      std::pair<torch::nn::BatchNorm2dImpl*, torch::nn::BatchNormOptions>>
      norms_;
};

class RunTwice : public torch::autograd::Function<RunTwice> {
 public:
  static torch::Tensor forward(AutogradContext* context, torch::Tensor x,
                               c10::intrusive_ptr<Replay> replay) {
    context->save_for_backward({x});
    // Autograd is off inside a Function's forward(), so nothing of the section
    // is kept.
    torch::Tensor y = replay->section(x);
    context->saved_data["replay"] = c10::IValue::make_capsule(replay);
    return y;
  }

  static torch::autograd::variable_list backward(
      AutogradContext* context, torch::autograd::variable_list gradients) {
    auto replay = c10::static_intrusive_pointer_cast<Replay>(
        context->saved_data["replay"].toCapsule());
    torch::Tensor saved = context->get_saved_variables()[0];
    // Make a new leaf. The backward pass below ends there, and its gradient is
    // what the outer pass continues with.
    torch::Tensor x = saved.detach().requires_grad_();
    torch::Tensor y;
    {
      torch::AutoGradMode record(true);
      FrozenStatistics frozen(*replay->module);
      Autocast autocast(x.device().type(), replay->autocast);
      y = replay->section(x);
    }
    // Accumulates the gradients of the parameters.
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor Recompute(std::shared_ptr<torch::nn::Module> module,
                        Section section, const torch::Tensor& x) {
  auto replay = c10::make_intrusive<Replay>();
  replay->module = std::move(module);
  replay->section = std::move(section);
  at::DeviceType device = x.device().type();
  if (at::autocast::is_autocast_enabled(device)) {
    replay->autocast = at::autocast::get_autocast_dtype(device);
  }
  return RunTwice::apply(x, replay);
}

}  // namespace resnet
