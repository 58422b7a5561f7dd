#include "support/simulated_training.h"

#include <absl/strings/str_replace.h>

#include <string>
#include <utility>

#include "support/program_simulator.h"

namespace stepscope {
namespace {

// ProgramOf() replaces the words in capitals. The second rank's batches take
// longer, and an op's memory is freed at the end of the step.
constexpr char kTraining[] = R"program(
  cores 2
  steps STEPS warmup=6
  ranks RANKS network=14
  loader name=train batch=32
  jitter host=0 device=0 loader=0 clock=0
  step {
    range loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ detail=train {
      host 8ms
      rank 1 { host 0.5ms }
    }
    do upload
    range phase forward { FORWARD }
    range phase backward { backward {
      repeat BLOCKS {
        node ReluBackward0 5us { do relu_backward }
        node NativeBatchNormBackward0 5us { do norm_backward }
        node ConvolutionBackward0 5us { do conv_backward }
      }
      do reduce
    } }
    do await_reduced
    range optimizer Optimizer.step#SGD.step { do update }
    repeat BLOCKS { repeat 6 { memory -4MiB; host 0.5us } }
    memory -4MiB
    host 50us
  }
)program";

constexpr char kBlock[] = R"program(
  range module layerBLOCK.0 detail=BasicBlock {
    range module layerBLOCK.0.conv1 detail=Conv2d { op aten::convolution 5us grad { do conv } }
    range module layerBLOCK.0.bn1 detail=BatchNorm2d { op aten::batch_norm 5us grad { do norm } }
    range module layerBLOCK.0.relu detail=ReLU { op aten::relu_ 5us grad { do relu } }
  }
)program";

// Arguments as PyTorch passes them, so that the costs of ops are known.
constexpr char kCpu[] = R"program(
  define upload { }
  define conv { op aten::mkldnn_convolution 1.2ms in=IMAGE,WEIGHT { memory 4MiB } }
  define norm { op aten::native_leaf 0.3ms in=IMAGE,WEIGHT { memory 4MiB } }
  define relu { op aten::native_leaf 0.1ms in=IMAGE,WEIGHT { memory 4MiB } }
  define conv_backward { op aten::convolution_backward 2.4ms in=IMAGE,IMAGE,WEIGHT,CONV { memory 4MiB } }
  define norm_backward { op aten::backward_leaf 0.6ms in=IMAGE,WEIGHT { memory 4MiB } }
  define relu_backward { op aten::backward_leaf 0.2ms in=IMAGE,WEIGHT { memory 4MiB } }
  define update { op aten::_foreach_add_ 0.9ms in=IMAGE,WEIGHT { memory 4MiB } }
)program";

constexpr char kGpu[] = R"program(
  gpu "NVIDIA H200" cc=9.0 sms=132 memory=141GiB bandwidth=4800 clock=1980 pageable=12.8
  define upload { op aten::copy_ 2us { copy h2d 19267584 pageable async } }
  define conv_kernel { memory 4MiB; kernel sm90_xmma_fprop_implicit_gemm_f16f16 900us LAUNCH }
  define norm_kernel { memory 4MiB; kernel "void cudnn::bn_fw_tr<c10::Half>(float)" 150us LAUNCH }
  define relu_kernel { memory 4MiB; kernel "void at::native::elementwise<c10::Half>()" 60us LAUNCH }
  define conv { op aten::cudnn_convolution 5us in=IMAGE,WEIGHT,'[1,1]','[1,1]','[1,1]','1','False','False','False' { do conv_kernel } }
  define norm { op aten::native_leaf 5us in=IMAGE,WEIGHT { do norm_kernel } }
  define relu { op aten::native_leaf 5us in=IMAGE,WEIGHT { do relu_kernel } }
  define conv_backward { op aten::convolution_backward 5us in=IMAGE,IMAGE,WEIGHT,CONV { do conv_kernel } }
  define norm_backward { op aten::backward_leaf 5us in=IMAGE,WEIGHT { do norm_kernel } }
  define relu_backward { op aten::backward_leaf 5us in=IMAGE,WEIGHT { do relu_kernel } }
  define update { op aten::_foreach_add_ 5us in=IMAGE,WEIGHT { do relu_kernel } }
)program";

constexpr char kAlone[] = "define reduce { }; define await_reduced { }\n";
constexpr char kTogether[] =
    "define reduce { collective all_reduce 23379024 dtype=Half }\n"
    "define await_reduced { join }\n";

std::string ProgramOf(const SimulatedTrainingOptions& options) {
  constexpr int kBlocks = 4;
  std::string forward;
  for (int block = 1; block <= kBlocks; ++block) {
    forward += absl::StrReplaceAll(kBlock, {{"BLOCK", std::to_string(block)}});
  }
  return absl::StrReplaceAll(
      std::string(options.gpu ? kGpu : kCpu) +
          (options.world_size > 1 ? kTogether : kAlone) + kTraining,
      {{"STEPS", std::to_string(options.steps)},
       {"RANKS", std::to_string(options.world_size)},
       {"BLOCKS", std::to_string(kBlocks)},
       {"FORWARD", forward},
       {"IMAGE", options.gpu ? "c10::Half[32x64x56x56]" : "float[32x64x56x56]"},
       {"WEIGHT", options.gpu ? "c10::Half[64x64x3x3]" : "float[64x64x3x3]"},
       {"CONV",
        "'[0]','[1,1]','[1,1]','[1,1]','False','[0,0]','1',"
        "'[True,True,False]'"},
       {"LAUNCH",
        "grid=256x4x1 block=128 waves=7.75 occupancy=0.375 registers=96 "
        "shared=48KiB"}});
}

}  // namespace

Trace SimulatedTraining(const SimulatedTrainingOptions& options) {
  ProgramRun run = MustRunProgram(ProgramOf(options));
  return std::move(run.ranks.at(options.rank));
}

}  // namespace stepscope
