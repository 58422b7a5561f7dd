// gallery: trains one pattern under stepscope. --help says how.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <stepscope/analysis.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>

#include "device.h"
#include "pattern.h"
#include "table.h"

namespace gallery {
namespace {

constexpr int kFailed = 1, kUsage = 2;

constexpr char kHelp[] =
    "gallery RULE [--fixed] [--device cpu|cuda] [--log-dir DIR] [--json FILE]\n"
    "        [--quiet]\n"
    "gallery --list | --table\n"
    "\n"
    "Trains a small program with one bad habit under stepscope, which finds "
    "it.\n"
    "  RULE            the habit, named as the rule that finds it\n"
    "  --fixed         the same program without the habit\n"
    "  --device cuda   on the first GPU; some habits show only there\n"
    "  --log-dir DIR   keep the trace and the report there\n"
    "  --json FILE     write the report as JSON (docs/json.md)\n"
    "  --quiet         do not print the report\n"
    "  --list          one habit a line\n"
    "  --table         the table of README.md\n";

struct Options {
  std::string rule, json;
  bool list = false, table = false, help = false, cuda = false;
  Run run;
};

// Returns what is wrong with the command line; empty if nothing is.
std::string Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool takes_value =
        word == "--device" || word == "--log-dir" || word == "--json";
    if (takes_value && i + 1 == argc) {
      return std::string(word) + " needs a value";
    }
    if (word == "--fixed") {
      options.run.fixed = true;
    } else if (word == "--quiet") {
      options.run.print_report = false;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--table") {
      options.table = true;
    } else if (word == "--help") {
      options.help = true;
    } else if (word == "--log-dir") {
      options.run.log_dir = argv[++i];
    } else if (word == "--json") {
      options.json = argv[++i];
    } else if (word == "--device") {
      const std::string_view device = argv[++i];
      if (device != "cpu" && device != "cuda") {
        return "--device takes cpu or cuda";
      }
      options.cuda = device == "cuda";
    } else if (word.starts_with("-") || !options.rule.empty()) {
      return "cannot read \"" + std::string(word) + "\"";
    } else {
      options.rule = word;
    }
  }
  const bool asks = options.list || options.table || options.help;
  return options.rule.empty() && !asks ? "which rule?" : "";
}

// Limits the process to `count` cores. A pattern then looks the same on every
// machine, however many cores there are. Must be called before LibTorch starts
// its threads.
void UseCores(int count) {
  cpu_set_t usable, used;
  CPU_ZERO(&used);
  if (::sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && count > 0; --cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    CPU_SET(cpu, &used);
    --count;
  }
  (void)::sched_setaffinity(0, sizeof(used), &used);
}

int Fail(const std::string& why, int code) {
  std::fprintf(stderr, "gallery: %s\n", why.c_str());
  return code;
}

int Train(const Pattern& pattern, Options& options) {
  if (options.cuda) {
    if (std::string why = OpenGpu(); !why.empty()) return Fail(why, kFailed);
    options.run.device = c10::Device(c10::kCUDA, 0);
  } else {
    UseCores(pattern.cores);
    at::set_num_threads(pattern.cores);
  }
  // Not an error: the program also trains on a CPU, but its habit does not show
  // there.
  if (pattern.needs_gpu && !options.cuda) {
    std::fprintf(stderr, "gallery: %s shows on a GPU only: --device cuda\n",
                 options.rule.c_str());
  }
  bool reported = false, written = options.json.empty();
  options.run.on_report = [&](const stepscope::Trace&,
                              const stepscope::Report& report) {
    reported = true;
    if (!options.json.empty()) {
      written = static_cast<bool>(std::ofstream(options.json)
                                  << stepscope::ToJson(report));
    }
  };
  options.run.active = pattern.active;
  // Makes the weights and data the same in every run, with the habit and
  // without it.
  at::manual_seed(1);
  try {
    pattern.train(options.run);
  } catch (const std::exception& error) {
    return Fail(error.what(), kFailed);
  }
  // train() has destroyed the Profile, which waits for its reports.
  if (!reported) return Fail("no report was made", kFailed);
  return written ? 0 : Fail("cannot write " + options.json, kFailed);
}

int Main(int argc, char** argv) {
  Options options;
  if (std::string wrong = Parse(argc, argv, options); !wrong.empty()) {
    return Fail(wrong + " (--help)", kUsage);
  }
  if (options.help) std::fputs(kHelp, stdout);
  if (options.list) std::fputs(ListText().c_str(), stdout);
  if (options.table) std::fputs(TableMarkdown().c_str(), stdout);
  if (options.rule.empty()) return 0;
  for (const Pattern* pattern : AllPatterns()) {
    if (pattern->rule == options.rule) return Train(*pattern, options);
  }
  for (const Absent& absent : AbsentRules()) {
    if (absent.rule == options.rule) {
      return Fail(options.rule + " has no program: " + std::string(absent.why),
                  kUsage);
    }
  }
  return Fail("no rule is called \"" + options.rule + "\" (--list)", kUsage);
}

}  // namespace
}  // namespace gallery

int main(int argc, char** argv) { return gallery::Main(argc, argv); }
