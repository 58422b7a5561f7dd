// ResNet-18 and ResNet-50 with torchvision's module names, shapes and initial
// weights, so that weights and module paths mean the same in both. Source: He
// et al., "Deep Residual Learning for Image Recognition". As in torchvision,
// the stride of a bottleneck is on its 3x3 convolution.
#pragma once

#include <stepscope/range.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace resnet {

// A module and its path in the network ("layer1.0.conv1"). stepscope records
// the path as a range around the module's calls.
template <typename Holder>
struct Layer {
  Holder module = nullptr;
  std::string path;
  const char* type = "";

  torch::Tensor operator()(const torch::Tensor& x) {
    stepscope::ModuleRange range(path, type);
    return module->forward(x);
  }
};

// A residual block: two 3x3 convolutions (BasicBlock), or 1x1, 3x3 and 1x1
// convolutions with four times the channels (Bottleneck); and the shortcut
// around them.
class BlockImpl : public torch::nn::Module {
 public:
  struct Shape {
    bool bottleneck = false;
    int64_t in = 0;
    int64_t width = 0;
    int64_t stride = 1;
    bool conv_bias = false;
    int64_t out() const { return bottleneck ? width * 4 : width; }
  };
  BlockImpl(const Shape& shape, const std::string& path);
  torch::Tensor forward(torch::Tensor x);

 private:
  std::vector<Layer<torch::nn::Conv2d>> convs_;
  std::vector<Layer<torch::nn::BatchNorm2d>> norms_;
  Layer<torch::nn::ReLU> relu_;
  // The shortcut's own convolution and norm, if the shape changes.
  torch::nn::Sequential downsample_ = nullptr;
  Layer<torch::nn::Conv2d> downsample_conv_;
  Layer<torch::nn::BatchNorm2d> downsample_norm_;
  std::string downsample_path_;
};
TORCH_MODULE(Block);

class ResNetImpl : public torch::nn::Module {
 public:
  struct Extras {
    // Adds a bias to every convolution. The norm that follows removes it again,
    // so the network computes the same but takes longer.
    bool conv_bias = false;
    // Blocks keep only their input and run again in the backward pass.
    bool recompute = false;
  };
  // REQUIRES: depth is 18 or 50.
  ResNetImpl(int depth, int64_t classes, const Extras& extras);
  ResNetImpl(int depth, int64_t classes)
      : ResNetImpl(depth, classes, Extras()) {}
  // [N, 3, H, W] to [N, classes].
  torch::Tensor forward(torch::Tensor x);

 private:
  struct Stage {
    torch::nn::Sequential module;
    std::string path;
    std::vector<Layer<Block>> blocks;
  };
  Stage MakeStage(int index, int64_t blocks, BlockImpl::Shape shape);

  bool recompute_;
  Layer<torch::nn::Conv2d> conv1_;
  Layer<torch::nn::BatchNorm2d> bn1_;
  Layer<torch::nn::ReLU> relu_;
  Layer<torch::nn::MaxPool2d> maxpool_;
  std::vector<Stage> stages_;
  Layer<torch::nn::AdaptiveAvgPool2d> avgpool_;
  Layer<torch::nn::Linear> fc_;
};
TORCH_MODULE(ResNet);

// Changes the memory of the convolutions' weights to NHWC. Module::to() cannot
// do this, because it takes no memory format.
void MakeChannelsLast(torch::nn::Module& module);

}  // namespace resnet
