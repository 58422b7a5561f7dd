// Profiles a loop that only counts. Fails unless a window was analysed and its
// files exist.
#include <stepscope/profile.h>
#include <stepscope/range.h>
#include <stepscope/version.h>

#include <cstdio>
#include <filesystem>
#include <string_view>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (std::string_view(stepscope::Version()) != EXPECTED_VERSION) {
    std::fprintf(stderr, "the library is %s, its package %s\n",
                 stepscope::Version(), EXPECTED_VERSION);
    return 1;
  }
  const std::filesystem::path log_dir = argv[1];
  {
    stepscope::Profile profile(
        {.log_dir = log_dir.string(), .name = "consumer"});
    volatile double sum = 0;
    for (int step = 0; step < 10; ++step) {
      stepscope::UserRange range("count");
      for (int i = 0; i < 200000; ++i) sum = sum + i;
      profile.Step();
    }
  }
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(log_dir / "stepscope")) {
    if (file.path().filename() == "report.txt") return 0;
  }
  std::fprintf(stderr, "no report under %s\n", log_dir.c_str());
  return 1;
}
