// Pattern: a small training program with a habit that one rule looks for. The
// same program also runs without the habit.
//
// Each file in patterns/ contains one pattern: host_sync.cc defines kHostSync.
// To learn about a habit, read its file: the comment says what is wrong, the
// lines that test `run.fixed` are the cure, and the rest is an ordinary loop.
#pragma once

#include <c10/core/Device.h>
#include <stepscope/profile.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gallery {

// The options of one run of a pattern, from the command line or a test.
struct Run {
  bool fixed = false;
  c10::Device device = c10::kCPU;
  std::string log_dir = "";  // "" writes no trace
  std::function<void(const stepscope::Trace&, const stepscope::Report&)>
      on_report = {};
  bool print_report = true;

  // The number of steps of the loop, as many as the default schedule below
  // needs.
  static constexpr int kSteps = 18;
  int active = 10;  // of these steps: recorded
  stepscope::ProfileOptions options() const;
};

// Another rule that rightly fires on this program.
struct Also {
  std::string_view rule;
  std::string_view why;
  bool when_fixed = false;  // also fires on the fixed program
};

struct Pattern {
  std::string_view rule;   // its id, as `stepscope rules` prints it
  std::string_view habit;  // what the program does, in a few words
  std::string_view fix;
  void (*train)(const Run& run) = nullptr;
  bool needs_gpu = false;  // without a GPU it trains, but shows nothing
  int cores = 1;           // that it runs on, and intra-op threads
  int active = 10;         // steps recorded; fewer if each has many ops
  bool is_note = false;    // right, but not worth a warning where it is tested
  std::vector<Also> also = {};
};

// Returns all patterns, sorted by rule.
std::vector<const Pattern*> AllPatterns();

// A rule that no program of this gallery provokes, and why.
struct Absent {
  std::string_view rule;
  std::string_view why;
};
std::vector<Absent> AbsentRules();

}  // namespace gallery
