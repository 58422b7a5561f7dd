// The correctness bench. Prints a table. Exits with 1 if a planted fault is
// missed, an unplanted fault is urged, or a prediction is too far off.
//   stepscope_advice_bench [--seeds N] [--seed S] [--only TEXT] [--jobs J]
//                          [--cases FOLDER] [--show]
// --seed is the first seed (default: drawn now and printed). --show prints the
// program and the report of every trial.
#include <stepscope/analysis.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "advice/score.h"

namespace stepscope {
namespace {

struct Arguments {
  int seeds = 100;
  uint64_t seed = 0;
  int jobs = 1;
  std::string only, folder = STEPSCOPE_ADVICE_CASES;
  bool show = false;
};

bool Read(int count, char** words, Arguments& arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--show") {
      arguments.show = true;
      continue;
    }
    if (i + 1 == count) return false;
    const std::string value = words[++i];
    if (word == "--seeds") {
      arguments.seeds = std::atoi(value.c_str());
    } else if (word == "--seed") {
      arguments.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (word == "--only") {
      arguments.only = value;
    } else if (word == "--jobs") {
      arguments.jobs = std::atoi(value.c_str());
    } else if (word == "--cases") {
      arguments.folder = value;
    } else {
      return false;
    }
  }
  return arguments.seeds > 0 && arguments.jobs > 0;
}

void Show(const AdviceCase& one, uint64_t seed, const Trial& trial) {
  std::printf("=== %s, seed %llu\n%s\n", one.name.c_str(),
              static_cast<unsigned long long>(seed), trial.program.c_str());
  TextOptions options;
  options.verbose = true;
  options.width = 140;
  std::printf("%s\nsimulated step %.3f ms\n",
              ToText(trial.report, options).c_str(), trial.now_ms);
  for (size_t i = 0; i < trial.fixed_ms.size(); ++i) {
    std::printf("  without %s %.3f ms\n", one.plant[i].c_str(),
                trial.fixed_ms[i]);
  }
  if (trial.planned_ms > 0) {
    std::printf("  with the plan %.3f ms\n", trial.planned_ms);
  }
}

// Prints every failing case once, with the first seed that fails.
void PrintFailures(const Score& score) {
  std::set<std::string> shown;
  for (const Failure& failure : score.failures()) {
    const std::string what = failure.what.substr(0, failure.what.find(' '));
    const auto same = [&](const Failure& other) {
      return other.case_name == failure.case_name &&
             other.what.starts_with(what + " ");
    };
    if (!shown.insert(failure.case_name + "|" + what).second) continue;
    std::printf("%s%s (%d times, first with --seed %llu): %s\n",
                failure.pending ? "[pending] " : "", failure.case_name.c_str(),
                static_cast<int>(std::ranges::count_if(score.failures(), same)),
                static_cast<unsigned long long>(failure.seed),
                failure.what.c_str());
  }
}

int Run(const Arguments& arguments) {
  absl::StatusOr<std::vector<AdviceCase>> read = ReadCases(arguments.folder);
  if (!read.ok()) {
    std::fprintf(stderr, "%s\n", read.status().ToString().c_str());
    return 2;
  }
  std::vector<AdviceCase> cases;
  for (AdviceCase& one : *read) {
    if (one.name.find(arguments.only) != std::string::npos) {
      cases.push_back(std::move(one));
    }
  }
  const uint64_t first =
      arguments.seed ? arguments.seed : std::random_device()() % 1'000'000'000;
  std::printf("%zu cases, seeds %llu to %llu\n", cases.size(),
              static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + arguments.seeds - 1));
  std::fflush(stdout);

  Score total;
  std::mutex mutex;
  std::atomic<int> next{0};
  std::atomic<bool> broken{false};
  const auto work = [&] {
    Score mine;
    for (int i = next++; i < arguments.seeds && !broken; i = next++) {
      for (const AdviceCase& one : cases) {
        const uint64_t seed = first + i;
        const absl::StatusOr<Trial> trial = Try(one, seed);
        if (!trial.ok()) {
          std::fprintf(stderr, "%s: %s\n", one.name.c_str(),
                       trial.status().ToString().c_str());
          broken = true;
          break;
        }
        if (arguments.show) Show(one, seed, *trial);
        mine.Add(one, seed, *trial);
      }
    }
    const std::lock_guard lock(mutex);
    total.Add(mine);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < arguments.jobs; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (broken) return 2;
  std::printf("%s\n", total.Table().c_str());
  PrintFailures(total);
  const auto pending =
      std::ranges::count(total.failures(), true, &Failure::pending);
  std::printf("%zu failures, %zu of them in cases that are pending\n",
              total.failures().size(), static_cast<size_t>(pending));
  return total.failures().empty() ? 0 : 1;
}

}  // namespace
}  // namespace stepscope

int main(int count, char** words) {
  stepscope::Arguments arguments;
  if (!stepscope::Read(count, words, arguments)) {
    std::fprintf(stderr,
                 "usage: stepscope_advice_bench [--seeds N] [--seed S] [--only "
                 "TEXT] [--jobs J] [--cases FOLDER] [--show]\n");
    return 2;
  }
  return stepscope::Run(arguments);
}
