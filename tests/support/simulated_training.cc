#include "support/simulated_training.h"

#include <stepscope/trace_builder.h>

#include <algorithm>
#include <string>
#include <vector>

namespace stepscope {
namespace {

class Simulation {
 public:
  explicit Simulation(const SimulatedTrainingOptions& options)
      : options_(options), now_ns_(options.begin_ns) {}
  Trace Run();

 private:
  struct Layer {
    const char* op;
    const char* module_class;
    const char* node;
    const char* kernel;
    int64_t host_ns;
    int64_t device_ns;
  };
  static constexpr Layer kConv = {"aten::convolution",
                                  "Conv2d",
                                  "ConvolutionBackward0",
                                  "sm90_xmma_fprop_implicit_gemm_f16f16",
                                  1'200'000,
                                  900'000};
  static constexpr Layer kNorm = {"aten::batch_norm",
                                  "BatchNorm2d",
                                  "NativeBatchNormBackward0",
                                  "void cudnn::bn_fw_tr<c10::Half>(float)",
                                  300'000,
                                  150'000};
  static constexpr Layer kRelu = {
      "aten::relu_",   "ReLU",
      "ReluBackward0", "void at::native::elementwise<c10::Half>()",
      100'000,         60'000};

  NameId Name(std::string_view text) { return builder_.Intern(text); }
  void AddRange(RangeKind kind, std::string_view name, int64_t begin_ns,
                std::string_view detail = "");
  int64_t Launch(const char* kernel, int64_t device_ns);
  RowId Inputs(std::string_view op);
  void Leaf(const char* op, const Layer& layer, int64_t host_ns);
  void Forward(const std::string& path, const Layer& layer);
  void Backward(const Layer& layer, int64_t sequence);
  void Upload();
  void AllReduce();
  void Step(int64_t number);

  const SimulatedTrainingOptions options_;
  TraceBuilder builder_;
  RowId main_ = kNone;
  RowId autograd_ = kNone;
  RowId thread_ = kNone;  // the one that runs now
  int64_t now_ns_;
  int64_t device_ns_ = 0;
  int64_t sequence_ = 0;
  int64_t correlation_ = 0;
  uint64_t address_ = 0x10000;
  int64_t allocated_ = 0;
  std::vector<std::pair<Layer, int64_t>> tape_;
  std::vector<Allocation> live_;
};

void Simulation::AddRange(RangeKind kind, std::string_view name,
                          int64_t begin_ns, std::string_view detail) {
  Range range;
  range.kind = kind;
  range.name = Name(name);
  range.detail = Name(detail);
  range.begin_ns = begin_ns;
  range.end_ns = now_ns_;
  range.thread = main_;
  builder_.Add(range);
}

int64_t Simulation::Launch(const char* kernel_name, int64_t device_ns) {
  RuntimeCall call;
  call.begin_ns = now_ns_;
  call.end_ns = now_ns_ + 5'000;
  call.thread = thread_;
  call.correlation = ++correlation_;
  call.name = Name("cudaLaunchKernel");
  builder_.Add(call);
  Kernel kernel;
  kernel.begin_ns = std::max(device_ns_, call.end_ns + 2'000);
  kernel.end_ns = kernel.begin_ns + device_ns;
  device_ns_ = kernel.end_ns;
  kernel.name = Name(kernel_name);
  kernel.correlation = call.correlation;
  kernel.stream = 7;
  kernel.context = 1;
  kernel.grid = {256, 4, 1};
  kernel.block = {128, 1, 1};
  kernel.registers_per_thread = 96;
  kernel.shared_memory_bytes = 49152;
  kernel.blocks_per_sm = 7.75F;
  kernel.warps_per_sm = 31;
  kernel.occupancy_frac = 0.375F;
  builder_.Add(kernel);
  now_ns_ = call.end_ns;
  return correlation_;
}

// The arguments of convolutions as PyTorch hands them over, so that their cost
// can be told; for the rest, what they stream.
RowId Simulation::Inputs(std::string_view op) {
  const NameId type = Name(options_.gpu ? "c10::Half" : "float");
  const Argument image = {.type = type, .dims = {32, 64, 56, 56}};
  const Argument weight = {.type = type, .dims = {64, 64, 3, 3}};
  const auto scalar = [&](const char* kind, const char* text) {
    return Argument{.type = Name(kind), .concrete = Name(text)};
  };
  const Argument ones = scalar("ScalarList", "[1, 1]");
  const Argument one = scalar("Scalar", "1");
  const Argument no = scalar("Scalar", "False");
  if (op == "aten::convolution_backward") {
    return builder_.InternInputs(
        {{image, image, weight, scalar("ScalarList", "[0]"), ones, ones, ones,
          no, scalar("ScalarList", "[0, 0]"), one,
          scalar("ScalarList", "[True, True, False]")}});
  }
  if (op == "aten::cudnn_convolution") {
    return builder_.InternInputs(
        {{image, weight, ones, ones, ones, one, no, no, no}});
  }
  return builder_.InternInputs({{image, weight}});
}

void Simulation::Leaf(const char* op_name, const Layer& layer,
                      int64_t host_ns) {
  Op op;
  op.begin_ns = now_ns_;
  op.thread = thread_;
  op.name = Name(op_name);
  op.inputs = Inputs(op_name);
  Allocation allocation;
  allocation.time_ns = now_ns_ + 1'000;
  allocation.thread = thread_;
  allocation.address = address_ += 1 << 22;
  allocation.bytes = 4 << 20;
  allocation.device_type = options_.gpu ? 1 : 0;
  allocation.device = options_.gpu ? 0 : -1;
  allocated_ += allocation.bytes;
  allocation.total_allocated_bytes = allocated_;
  allocation.total_reserved_bytes = options_.gpu ? allocated_ + (8 << 20) : 0;
  builder_.Add(allocation);
  live_.push_back(allocation);
  now_ns_ += 2'000;
  if (options_.gpu) {
    Launch(layer.kernel, layer.device_ns);
    now_ns_ += 3'000;
  } else {
    now_ns_ += host_ns;
  }
  op.end_ns = now_ns_;
  builder_.Add(op);
}

void Simulation::Forward(const std::string& path, const Layer& layer) {
  const int64_t module_ns = now_ns_;
  now_ns_ += 1'000;
  Op op;
  op.begin_ns = now_ns_;
  op.thread = main_;
  op.name = Name(layer.op);
  op.sequence = sequence_++;
  now_ns_ += 4'000;
  const char* leaf = std::string_view(layer.op) != "aten::convolution"
                         ? "aten::native_leaf"
                     : options_.gpu ? "aten::cudnn_convolution"
                                    : "aten::mkldnn_convolution";
  Leaf(leaf, layer, layer.host_ns);
  now_ns_ += 1'000;
  op.end_ns = now_ns_;
  builder_.Add(op);
  tape_.push_back({layer, op.sequence});
  now_ns_ += 1'000;
  AddRange(RangeKind::kModule, path, module_ns, layer.module_class);
}

void Simulation::Backward(const Layer& layer, int64_t sequence) {
  Op node;
  node.begin_ns = now_ns_;
  node.thread = thread_;
  node.kind = OpKind::kBackward;
  node.sequence = sequence;
  node.forward_thread = 1;
  node.name =
      Name(std::string("autograd::engine::evaluate_function: ") + layer.node);
  now_ns_ += 3'000;
  Leaf(std::string_view(layer.op) == "aten::convolution"
           ? "aten::convolution_backward"
           : "aten::backward_leaf",
       layer, layer.host_ns * 2);
  now_ns_ += 2'000;
  node.end_ns = now_ns_;
  builder_.Add(node);
}

void Simulation::Upload() {
  Op op;
  op.begin_ns = now_ns_;
  op.thread = main_;
  op.name = Name("aten::copy_");
  RuntimeCall call;
  call.begin_ns = now_ns_ + 1'000;
  call.thread = main_;
  call.correlation = ++correlation_;
  call.name = Name("cudaMemcpyAsync");
  Copy copy;
  copy.begin_ns = std::max(device_ns_, call.begin_ns + 3'000);
  copy.end_ns = copy.begin_ns + 1'500'000;
  copy.correlation = call.correlation;
  copy.stream = 7;
  copy.context = 1;
  copy.source = MemoryKind::kPageable;
  copy.destination = MemoryKind::kDevice;
  copy.bytes = 19267584;
  device_ns_ = copy.end_ns;
  call.end_ns = copy.end_ns;
  now_ns_ = call.end_ns + 1'000;
  op.end_ns = now_ns_;
  builder_.Add(call);
  builder_.Add(copy);
  builder_.Add(op);
}

void Simulation::AllReduce() {
  Op op;
  op.begin_ns = now_ns_;
  op.thread = thread_;
  op.name = Name("record_param_comms");
  Communication communication;
  communication.begin_ns = now_ns_;
  communication.thread = thread_;
  communication.name = Name("allreduce");
  communication.dtype = Name("Half");
  communication.in_elements = communication.out_elements = 11'689'512;
  communication.group_size = options_.world_size;
  communication.group_name = Name("0");
  communication.group_description = Name("default_pg");
  communication.group_ranks = Name("[0, 1]");
  now_ns_ += 2'000;
  const int64_t mark_ns = now_ns_;
  if (options_.gpu) {
    Launch("ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgs)",
           1'700'000);
  } else {
    now_ns_ += 1'700'000;
  }
  Range mark;
  mark.kind = RangeKind::kCollective;
  mark.name = Name(options_.gpu ? "nccl:all_reduce" : "gloo:all_reduce");
  mark.begin_ns = mark_ns;
  mark.end_ns = now_ns_;
  mark.thread = thread_;
  builder_.Add(mark);
  now_ns_ += 1'000;
  op.end_ns = communication.end_ns = now_ns_;
  builder_.Add(op);
  builder_.Add(communication);
}

void Simulation::Step(int64_t number) {
  stepscope::Step step;
  step.begin_ns = now_ns_;
  step.number = number;
  step.thread = thread_ = main_;
  now_ns_ += options_.loader_ns;
  AddRange(RangeKind::kLoader,
           "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
           step.begin_ns, "train");
  if (options_.gpu) Upload();

  int64_t begin_ns = now_ns_;
  for (int block = 0; block < options_.blocks; ++block) {
    const int64_t block_ns = now_ns_;
    const std::string path = "layer" + std::to_string(block + 1) + ".0";
    Forward(path + ".conv1", kConv);
    Forward(path + ".bn1", kNorm);
    Forward(path + ".relu", kRelu);
    AddRange(RangeKind::kModule, path, block_ns, "BasicBlock");
  }
  AddRange(RangeKind::kPhase, "forward", begin_ns);

  begin_ns = now_ns_;
  thread_ = autograd_;
  while (!tape_.empty()) {
    Backward(tape_.back().first, tape_.back().second);
    tape_.pop_back();
  }
  if (options_.world_size > 1) AllReduce();
  thread_ = main_;
  AddRange(RangeKind::kPhase, "backward", begin_ns);

  begin_ns = now_ns_;
  Leaf("aten::_foreach_add_", kRelu, 900'000);
  AddRange(RangeKind::kOptimizer, "Optimizer.step#SGD.step", begin_ns);
  for (Allocation& event : live_) {
    now_ns_ += 500;
    event.time_ns = now_ns_;
    event.bytes = -event.bytes;
    allocated_ += event.bytes;
    event.total_allocated_bytes = allocated_;
    event.thread = main_;
    builder_.Add(event);
  }
  live_.clear();
  now_ns_ += 50'000 + number * 1'000;
  step.end_ns = now_ns_;
  builder_.Add(step);
}

Trace Simulation::Run() {
  const int64_t pid = 4000 + options_.rank;
  main_ = builder_.ThreadRow(pid, pid);
  builder_.thread(main_).torch_thread = 1;
  builder_.thread(main_).name = Name("main");
  autograd_ = builder_.ThreadRow(pid, pid + 10);
  builder_.thread(autograd_).torch_thread = 2;
  builder_.thread(autograd_).name = Name("autograd");
  RunInfo& run = builder_.run();
  run.name = "resnet18";
  run.host = "testhost";
  run.pid = pid;
  run.rank = options_.rank;
  run.world_size = options_.world_size;
  if (options_.world_size > 1) run.backend = options_.gpu ? "nccl" : "gloo";
  run.producer = "stepscope";
  run.training_thread = main_;
  run.usable_cores = 2;
  run.record_shapes = run.profile_memory = true;
  if (options_.gpu) {
    run.devices.push_back({.name = "NVIDIA H200",
                           .vendor = "Nvidia",
                           .memory_bytes = int64_t{141} << 30,
                           .compute_major = 9,
                           .compute_minor = 0,
                           .sm_count = 132,
                           .max_threads_per_sm = 2048,
                           .warp_size = 32,
                           .regs_per_sm = 65536,
                           .shared_memory_per_sm_bytes = 233472,
                           .clock_khz = 1'980'000,
                           .memory_bandwidth_bytes_per_s = 4'800'000'000'000});
  }
  for (Kind kind : {Kind::kStep, Kind::kRange, Kind::kOp, Kind::kOpShapes,
                    Kind::kMemory, Kind::kLoader, Kind::kCommunication})
    builder_.Watch(kind);
  if (options_.gpu) {
    for (Kind kind :
         {Kind::kRuntimeCall, Kind::kKernel, Kind::kCopy, Kind::kMemset})
      builder_.Watch(kind);
  }
  Loader loader;
  loader.name = Name("train");
  loader.kind = Name("in-process");
  loader.workers = 0;
  loader.batch_size = 32;
  builder_.Add(loader);
  run.window_begin_ns = now_ns_;
  for (int step = 0; step < options_.steps; ++step) Step(step + 6);
  builder_.run().window_end_ns = now_ns_;
  return builder_.Build();
}

}  // namespace

Trace SimulatedTraining(const SimulatedTrainingOptions& options) {
  return Simulation(options).Run();
}

}  // namespace stepscope
