// ladder: takes resnet up the rungs of the published case study, measures each
// and writes down what it brought. --help says what can be changed.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ascent.h"
#include "options.h"
#include "results.h"
#include "rungs.h"

namespace ladder {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kGoOnLater = 3;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "ladder: %s\n", std::string(status.message()).c_str());
  return absl::IsResourceExhausted(status) ? kGoOnLater : code;
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  ::gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y-%m-%d", &utc);
  return text;
}

// What was asked for; not where its files lie on this machine.
std::string CommandOf(std::span<const char* const> args) {
  std::string text = "ladder";
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string arg = args[i];
    const std::string flag = arg.substr(0, arg.find('='));
    if (flag == "--resnet" || flag == "--work" || flag == "--results" ||
        flag == "--limit") {
      if (flag == arg) ++i;  // its value
      continue;
    }
    text += " " + arg;
  }
  return text;
}

void Tell(const Taken& taken) {
  std::string line = taken.rung.name + " (" + taken.rung.flags + "): ";
  if (!taken.failed.empty()) {
    std::printf("%sfails, taken back: %s\n", line.c_str(),
                taken.failed.c_str());
    return;
  }
  char text[160];
  std::snprintf(text, sizeof(text), "%.1f samples/s", taken.samples_per_s);
  line += text;
  if (!taken.measured.after.empty()) {
    const measure::Interval range = taken.factor_interval();
    std::snprintf(text, sizeof(text), ", times %.2f (%.2f to %.2f)",
                  taken.factor(), range.low, range.high);
    line += text;
    if (taken.reason.finding.empty()) {
      line += ", asked for by no finding";
    } else {
      std::snprintf(text, sizeof(text), ", %s said %s%.2f",
                    taken.reason.finding.c_str(),
                    taken.reason.gain_is == "bound" ? "at most " : "",
                    taken.reason.factor);
      line += text;
      if (!taken.reason.of_change.empty()) {
        line += " of " + taken.reason.of_change;
      }
    }
  }
  std::printf("%s%s\n", line.c_str(), taken.kept ? "" : ": taken back");
  std::fflush(stdout);
}

absl::Status Run(const Options& options, const std::string& command) {
  absl::StatusOr<measure::Workload> workload =
      measure::Workload::Find(options.resnet, options.always);
  if (!workload.ok()) return workload.status();
  measure::BenchOptions bench_options;
  bench_options.folder = options.folder;
  bench_options.limit = std::chrono::seconds(options.limit_s);
  bench_options.window.active = options.active;
  absl::StatusOr<measure::Bench> bench =
      measure::Bench::Open(*std::move(workload), std::move(bench_options));
  if (!bench.ok()) return bench.status();
  absl::StatusOr<Ladder> ladder = GoUp(*bench, RungsFor(options.device),
                                       {.pairs = options.pairs,
                                        .length = {.steps = options.steps},
                                        .tell = Tell});
  if (!ladder.ok()) return ladder.status();
  absl::Status written =
      WriteResults(*ladder, options.device, options.results, Today(), command);
  if (written.ok()) std::printf("written to %s\n", options.results.c_str());
  return written;
}

int Main(std::span<const char* const> args) {
  absl::StatusOr<Options> options = ParseOptions(args);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  absl::Status status = Run(*options, CommandOf(args));
  return status.ok() ? 0 : Fail(status, kFailed);
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::Main({argv + 1, static_cast<size_t>(argc - 1)});
}
