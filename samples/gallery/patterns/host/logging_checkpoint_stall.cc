// logging-checkpoint-stall: every few steps the model is written to a file, and
// training stops until the file is written.
// Fix: copy the parameters, which is quick, and let a thread write them.
#include <fcntl.h>
#include <stepscope/range.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "pattern.h"
#include "training.h"

namespace gallery {
namespace {

constexpr int kEvery = 4;

using Tensors = std::vector<torch::Tensor>;

void Copy(const Tensors& from, Tensors& to) {
  torch::NoGradGuard guard;
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
}

// Writes a checkpoint that survives a crash of the machine.
void Write(const Tensors& tensors, const std::string& name) {
  torch::save(tensors, name);
  const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

void TrainLoggingCheckpointStall(const Run& run) {
  torch::set_num_threads(1);  // leave the other core to the writer
  torch::nn::Sequential network = Mlp({1024, 1024, 1024, 1024}, run.device);
  torch::optim::SGD sgd(network->parameters(), 0.01);
  const Batch batch = MakeBatch(64, 1024, 1024, run.device);
  const std::string file =
      (std::filesystem::temp_directory_path() /
       ("gallery-checkpoint-" + std::to_string(::getpid()) + ".pt"))
          .string();
  const Tensors parameters = network->parameters();
  Tensors copies;
  for (const torch::Tensor& one : parameters) {
    copies.push_back(torch::zeros_like(one));
  }
  std::thread writer;

  stepscope::Profile profile(run.options());
  for (int step = 0; step < Run::kSteps; ++step) {
    TrainStep(network, sgd, batch);
    if (step % kEvery == kEvery - 1) {
      stepscope::UserRange range("save checkpoint");
      if (run.fixed) {
        if (writer.joinable()) writer.join();
        Copy(parameters, copies);
        writer = std::thread([&] { Write(copies, file); });
      } else {
        Write(parameters, file);
      }
    }
    profile.Step();
  }
  if (writer.joinable()) writer.join();
  std::filesystem::remove(file);
}

}  // namespace

extern const Pattern kLoggingCheckpointStall = {
    .rule = "logging-checkpoint-stall",
    .habit = "writes checkpoints inside the loop",
    .fix = "copy, and write from a thread",
    .train = &TrainLoggingCheckpointStall,
    .cores = 2,
    .also = {{"cores-idle", "one core is kept for the thread that writes",
              /*when_fixed=*/true}}};

}  // namespace gallery
