#include "model.h"

#include <array>
#include <utility>

#include "recompute.h"

namespace resnet {
namespace {

using torch::nn::AdaptiveAvgPool2d;
using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Linear;
using torch::nn::MaxPool2d;
using torch::nn::MaxPool2dOptions;
using torch::nn::ReLU;
using torch::nn::ReLUOptions;
using torch::nn::Sequential;

Conv2d MakeConv(int64_t in, int64_t out, int64_t kernel, int64_t stride,
                bool bias) {
  return Conv2d(Conv2dOptions(in, out, kernel)
                    .stride(stride)
                    .padding(kernel / 2)
                    .bias(bias));
}

ReLU MakeRelu() { return ReLU(ReLUOptions().inplace(true)); }

}  // namespace

BlockImpl::BlockImpl(const Shape& shape, const std::string& path) {
  struct Size {
    int64_t kernel, stride, out;
  };
  std::vector<Size> sizes = {{3, shape.stride, shape.width},
                             {3, 1, shape.width}};
  if (shape.bottleneck) {
    sizes = {{1, 1, shape.width},
             {3, shape.stride, shape.width},
             {1, 1, shape.out()}};
  }
  int64_t in = shape.in;
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::string conv = "conv" + std::to_string(i + 1);
    std::string norm = "bn" + std::to_string(i + 1);
    const Size& size = sizes[i];
    convs_.push_back(
        {register_module(conv, MakeConv(in, size.out, size.kernel, size.stride,
                                        shape.conv_bias)),
         path + "." + conv, "Conv2d"});
    norms_.push_back({register_module(norm, BatchNorm2d(size.out)),
                      path + "." + norm, "BatchNorm2d"});
    in = size.out;
  }
  relu_ = {register_module("relu", MakeRelu()), path + ".relu", "ReLU"};
  // If the input has the shape of the output, the input itself is the shortcut.
  if (shape.stride == 1 && shape.in == shape.out()) return;
  downsample_path_ = path + ".downsample";
  downsample_conv_ = {
      MakeConv(shape.in, shape.out(), 1, shape.stride, shape.conv_bias),
      downsample_path_ + ".0", "Conv2d"};
  downsample_norm_ = {BatchNorm2d(shape.out()), downsample_path_ + ".1",
                      "BatchNorm2d"};
  // Registered as one module, to get torchvision's names. forward() calls its
  // parts one by one, each in its own range.
  downsample_ = register_module(
      "downsample",
      Sequential(downsample_conv_.module, downsample_norm_.module));
}

torch::Tensor BlockImpl::forward(torch::Tensor x) {
  torch::Tensor shortcut = x;
  for (size_t i = 0; i < convs_.size(); ++i) {
    if (i > 0) x = relu_(x);
    x = norms_[i](convs_[i](x));
  }
  if (!downsample_.is_empty()) {
    stepscope::ModuleRange range(downsample_path_, "Sequential");
    shortcut = downsample_norm_(downsample_conv_(shortcut));
  }
  x += shortcut;
  return relu_(x);
}

ResNetImpl::ResNetImpl(int depth, int64_t classes, const Extras& extras)
    : recompute_(extras.recompute) {
  bool bottleneck = depth == 50;
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
  if (bottleneck) blocks = {3, 4, 6, 3};
  conv1_ = {register_module("conv1", MakeConv(3, 64, 7, 2, extras.conv_bias)),
            "conv1", "Conv2d"};
  bn1_ = {register_module("bn1", BatchNorm2d(64)), "bn1", "BatchNorm2d"};
  relu_ = {register_module("relu", MakeRelu()), "relu", "ReLU"};
  maxpool_ = {
      register_module("maxpool",
                      MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1))),
      "maxpool", "MaxPool2d"};
  BlockImpl::Shape shape{bottleneck, 64, 64, 1, extras.conv_bias};
  for (int i = 0; i < 4; ++i) {
    stages_.push_back(MakeStage(i, blocks[i], shape));
    shape.in = shape.out();
    shape.width *= 2;
    shape.stride = 2;
  }
  avgpool_ = {register_module("avgpool", AdaptiveAvgPool2d(1)), "avgpool",
              "AdaptiveAvgPool2d"};
  fc_ = {register_module("fc", Linear(shape.in, classes)), "fc", "Linear"};
  // Norms (ones and zeros) and the last layer keep LibTorch's default initial
  // values, which are also torchvision's.
  for (auto& module : modules(/*include_self=*/false)) {
    if (auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut,
                                       torch::kReLU);
    }
  }
}

ResNetImpl::Stage ResNetImpl::MakeStage(int index, int64_t blocks,
                                        BlockImpl::Shape shape) {
  Stage stage;
  stage.path = "layer" + std::to_string(index + 1);
  const char* type = shape.bottleneck ? "Bottleneck" : "BasicBlock";
  for (int64_t i = 0; i < blocks; ++i) {
    std::string path = stage.path + "." + std::to_string(i);
    stage.blocks.push_back({Block(shape, path), path, type});
    stage.module->push_back(stage.blocks.back().module);
    shape.in = shape.out();
    shape.stride = 1;
  }
  register_module(stage.path, stage.module);
  return stage;
}

torch::Tensor ResNetImpl::forward(torch::Tensor x) {
  x = maxpool_(relu_(bn1_(conv1_(x))));
  for (Stage& stage : stages_) {
    stepscope::ModuleRange range(stage.path, "Sequential");
    for (Layer<Block>& block : stage.blocks) {
      // Without gradients there is no backward pass that could run the block
      // again.
      x = recompute_ && torch::GradMode::is_enabled()
              ? Recompute(block.module.ptr(), block, x)
              : block(x);
    }
  }
  return fc_(torch::flatten(avgpool_(x), 1));
}

void MakeChannelsLast(torch::nn::Module& module) {
  torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) {
    // Only weights of convolutions have four dimensions.
    if (parameter.dim() != 4) continue;
    parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

}  // namespace resnet
