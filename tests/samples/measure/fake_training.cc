// A program that behaves like the sample towards whoever measures it: takes
// its flags, "trains" without taking any time, writes --json and, unless told
// --no-profile, an advice file. What a step takes follows from the flags by the
// sums below, so tests know what is right.
//   --fail      ends with exit code 3    --hang   sleeps for ever
//   --fail-if FLAG    the same, beside that flag
//   --slow-start MS   takes so long to run, whatever it writes
//   --advise JSON    the findings, parted by commas, instead of the usual ones
//   --hold-back STEPS   where fewer are recorded, the findings are held back
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "cube/cube.h"
#include "samples/fake_flags.h"

namespace {

// Milliseconds. Loading (1 ms a sample) hides behind computing (2 ms a sample
// and 20 ms whatever the batch) if there are workers; 2 threads halve the
// computing, but not beside workers, as there are 2 cores; channels_last costs
// a tenth; printing 8 ms, reading the loss 5 ms.
double StepMs(const Flags& flags) {
  const double batch = Number(flags, "--batch", 32);
  const int workers = Number(flags, "--workers", 0);
  const int threads = Number(flags, "--threads", 1);
  double compute = 20 + 2 * batch;
  if (threads > 1) compute *= workers > 0 ? 1 : 0.5;
  if (flags.contains("--channels-last")) compute *= 1.1;
  if (flags.contains("--print-tensor")) compute += 8;
  if (flags.contains("--item-every-step")) compute += 5;
  return compute + (workers > 0 ? 0 : batch);
}

void WriteTimes(const Flags& flags, const std::string& path) {
  std::ofstream file(path);
  file << "{\"step_ms\": [";
  const int steps = Number(flags, "--steps", 10);
  const int warm = Number(flags, "--warm-steps", 3);
  for (int i = 0; i < steps; ++i) {
    // The first steps are slow, the others jitter by up to 1 %.
    const double factor = i < warm ? 3 : 1 + 0.005 * (i % 5 - 2);
    file << (i == 0 ? "" : ", ") << factor * StepMs(flags);
  }
  file << "], \"warm_steps\": " << warm
       << ", \"batch\": " << Number(flags, "--batch", 32) << "}\n";
}

void Advise(Flags flags, const char* flag, const char* value, const char* id,
            const char* settings, double times, std::string* findings) {
  const double before = StepMs(flags);
  if (value == nullptr) {
    flags.erase(flag);
  } else {
    flags[flag] = value;
  }
  const double gain = before - StepMs(flags) / times;
  if (gain < 0.02 * before) return;
  char text[400];
  std::snprintf(text, sizeof(text),
                "%s{\"id\": \"%s\", \"severity\": \"high\", \"gain_is\": "
                "\"predicted\", \"gain_ms_per_step\": {\"expected\": %f, "
                "\"low\": %f, \"high\": %f}, \"evidence\": \"saw %s\", "
                "\"where\": \"\", \"fix\": {\"cpp\": \"set %s\"}, "
                "\"settings\": %s}",
                findings->empty() ? "" : ", ", id, gain, 0.9 * gain, 1.1 * gain,
                flag, flag, settings);
  *findings += text;
}

std::string Findings(const Flags& flags) {
  const auto told = flags.find("--advise");
  if (told != flags.end()) return told->second;
  std::string findings;
  Advise(flags, "--threads", "2", "cores-idle", "{\"intra_op_threads\": 2}", 1,
         &findings);
  Advise(flags, "--workers", "1", "sync-data-loading", "{\"workers\": 1}", 1,
         &findings);
  for (const char* habit : {"--print-tensor", "--item-every-step"}) {
    if (flags.contains(habit)) {
      Advise(flags, habit, nullptr, "host-sync", "{}", 1, &findings);
    }
  }
  const std::string batch = std::to_string(2 * Number(flags, "--batch", 32));
  if (Number(flags, "--batch", 32) < 64) {
    Advise(flags, "--batch", batch.c_str(), "small-batch",
           "{\"batch_factor\": 2}", 2, &findings);
  }
  return findings;
}

void WriteAdvice(const Flags& flags, const std::string& log_dir) {
  const std::string folder = log_dir + "/stepscope/run/c0/advice";
  std::filesystem::create_directories(folder);
  const bool held =
      Number(flags, "--active", 0) < Number(flags, "--hold-back", 0);
  std::ofstream(folder + "/rank0.json")
      << "{\"version\": 1, \"run\": {\"usable_cores\": 2}, \"steps\": "
         "{\"count\": 10, \"steady\": 10, \"mean_ms\": "
      << StepMs(flags)
      << ", \"cov\": 0.01}, \"time_split_ms\": {\"compute\": " << StepMs(flags)
      << "}, \"findings\": [" << (held ? "" : Findings(flags))
      << "], \"held_back\": [" << (held ? "\"cores-idle\"" : "") << "]}\n";
}

// As the sample's: asked before a combination is run.
absl::Status Accepts(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--workers=7" || argument == "--workers=6") {
      return absl::InvalidArgumentError("--workers must be at most 4");
    }
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--sweep") {
    return cube::SweepMain({argv + 2, argv + argc}, Accepts);
  }
  const Flags flags = ReadFlags(argc, argv);
  if (flags.contains("--hang")) ::sleep(1000);
  ::usleep(1000 * static_cast<unsigned>(Number(flags, "--slow-start", 0)));
  const auto fails_beside = flags.find("--fail-if");
  if (flags.contains("--fail") ||
      (fails_beside != flags.end() && flags.contains(fails_beside->second))) {
    std::fprintf(stderr, "training stopped: no such weather\n");
    return 3;
  }
  if (flags.contains("--json")) WriteTimes(flags, flags.at("--json"));
  if (!flags.contains("--no-profile") && flags.contains("--log-dir")) {
    WriteAdvice(flags, flags.at("--log-dir"));
  }
  return 0;
}
