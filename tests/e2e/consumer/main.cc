// Trains a small model for ten steps under a Profile, as in docs/install.md.
// Fails unless operators of the program's own LibTorch were recorded.
#include <stepscope/profile.h>
#include <stepscope/trace.h>
#include <torch/torch.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  size_t ops = 0;
  {
    torch::nn::Linear model(32, 8);
    torch::optim::SGD optimizer(model->parameters(), 0.01);
    stepscope::ProfileOptions options{.log_dir = argv[1], .name = "linear"};
    options.record_shapes = true;
    options.on_report = [&](const stepscope::Trace& trace,
                            const stepscope::Report&) {
      ops = trace.ops().size();
    };
    stepscope::Profile profile(std::move(options));
    for (int step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      model(torch::randn({64, 32})).square().mean().backward();
      optimizer.step();
      profile.Step();
    }
    if (!profile.Finish().ok()) return 1;
  }
  if (ops == 0) std::fputs("no operator was recorded\n", stderr);
  return ops == 0 ? 1 : 0;
}
