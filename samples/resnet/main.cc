// resnet: trains a ResNet under stepscope. --help lists the options.
#include <unistd.h>

#include <cstdio>
#include <span>
#include <string>

#include "data/image_source.h"
#include "flags/parse_options.h"
#include "progress.h"
#include "step_times.h"
#include "train.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "resnet: %s\n", std::string(status.message()).c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::span<const char* const> args(argv + 1, static_cast<size_t>(argc - 1));
  absl::StatusOr<resnet::Options> options = resnet::ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(resnet::HelpText().c_str(), stdout);
    return 0;
  }

  resnet::Progress progress(stderr, ::isatty(STDERR_FILENO) != 0,
                            options->steps, options->batch);
  resnet::SourceRequest request{.data = options->data,
                                .jpeg_cache = options->data_cache,
                                .classes = options->classes,
                                .seed = options->seed};
  absl::StatusOr<resnet::Sources> sources = resnet::OpenSources(
      request, [&](const std::string& line) { progress.Say(line); });
  if (!sources.ok()) return Fail(sources.status(), kFailed);
  progress.Say("ResNet-" + std::to_string(options->model) + ", batch " +
               std::to_string(options->batch) + ", side " +
               std::to_string(options->side) + ", " +
               std::to_string(options->workers) +
               (options->workers == 1 ? " worker, on " : " workers, on ") +
               sources->train->description());

  absl::StatusOr<resnet::StepTimes> times =
      resnet::Train(*options, *std::move(sources), progress);
  if (!times.ok()) {
    progress.Finish();
    return Fail(times.status(), kFailed);
  }
  char text[96];
  std::snprintf(text, sizeof(text),
                "median step %.1f ms, %.0f samples/s (first %d steps excluded)",
                times->MedianMs(), times->SamplesPerSecond(),
                times->warm_steps);
  progress.Say(text);
  if (options->json.empty()) return 0;
  absl::Status written = resnet::WriteJson(*times, options->json);
  return written.ok() ? 0 : Fail(written, kFailed);
}
