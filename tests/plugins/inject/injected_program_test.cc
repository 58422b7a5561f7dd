// Records a program that does not use stepscope, through environment variables.
// The program must behave as before, and the files must exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/read.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::injected_program_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class InjectedProgramTest : public testing::Test {
 protected:
  // `settings` precede the command, as in a shell.
  Outcome Run(const std::string& settings, const std::string& words) {
    return RunShell(
        "env -u NVTX_INJECTION64_PATH " + settings +
            " timeout --preserve-status -s KILL 60 '" NVTX_PROGRAM "' " + words,
        folder_);
  }
  std::string ByNvtx() const {
    return "NVTX_INJECTION64_PATH='" INJECTION "' STEPSCOPE_LOG_DIR='" + log_ +
           "' ";
  }
  std::string BySteps(const std::string& schedule) const {
    return ByNvtx() +
           "STEPSCOPE_STEP_RANGE=step STEPSCOPE_SCHEDULE=" + schedule + " ";
  }

  std::vector<std::string> FilesLike(const std::string& ending) const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(log_)) return found;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(log_)) {
      const std::string path = entry.path().string();
      if (entry.is_regular_file() && path.ends_with(ending)) {
        found.push_back(path);
      }
    }
    return found;
  }
  // Returns the only trace.
  Trace Only() const {
    const auto files = FilesLike("/trace/rank0.json.gz");
    EXPECT_THAT(files, SizeIs(1));
    auto trace = files.empty() ? absl::NotFoundError("no trace")
                               : ReadTrace(files.front());
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.ok() ? *std::move(trace) : Trace();
  }
  // Returns how often each range was recorded.
  std::map<std::string, int> Ranges(const Trace& trace) const {
    std::map<std::string, int> counts;
    for (const Range& range : trace.ranges()) {
      EXPECT_EQ(range.kind, RangeKind::kNvtx);
      ++counts[std::string(trace.name(range.name))];
    }
    return counts;
  }

  TempFolder folder_;
  const std::string log_ = folder_.At("log dir");
};

TEST_F(InjectedProgramTest, LeavesAllFilesOfAWindowOfSteps) {
  const Outcome run = Run(BySteps("1,1,2"), "6 4");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("the program's own output\n"));
  EXPECT_THAT(run.out, HasSubstr("2 steps"));
  EXPECT_THAT(run.err, HasSubstr("\"nvtx_program\""));
  EXPECT_THAT(FilesLike(".pt.trace.json.gz"), SizeIs(1));
  EXPECT_THAT(FilesLike(".xplane.pb"), SizeIs(1));
  EXPECT_THAT(FilesLike("/advice/rank0.json"), SizeIs(1));
  EXPECT_THAT(FilesLike("/report.txt"), SizeIs(1));
  const Trace trace = Only();
  ASSERT_EQ(trace.steps().size(), 2u);
  EXPECT_EQ(trace.steps()[0].number, 2);
  // The step includes 4 ms in the range and 1 ms after it.
  EXPECT_GE(trace.steps()[0].end_ns - trace.steps()[0].begin_ns, 5'000'000);
  const auto ranges = Ranges(trace);
  EXPECT_EQ(ranges.at("step"), 2);
  EXPECT_EQ(ranges.at("forward"), 2);
}

TEST_F(InjectedProgramTest, RecordsAStretchOfTime) {
  const Outcome run = Run(ByNvtx() +
                              "STEPSCOPE_START_MS=40 STEPSCOPE_DURATION_MS=80 "
                              "STEPSCOPE_PRINT=0 STEPSCOPE_NAME=mine",
                          "200 4");
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "the program's own output\n");
  const Trace trace = Only();
  EXPECT_EQ(trace.run().name, "mine");
  ASSERT_EQ(trace.steps().size(), 1u);
  const Step step = trace.steps()[0];
  EXPECT_GE(step.end_ns - step.begin_ns, 80'000'000);
  // The main thread is the training thread.
  const Thread thread = trace.threads()[step.thread];
  EXPECT_EQ(thread.pid, thread.tid);
  EXPECT_EQ(trace.threads()[trace.ranges()[0].thread].tid, thread.tid);
  EXPECT_GE(Ranges(trace).at("forward"), 2);
}

TEST_F(InjectedProgramTest, KeepsWhatIsThereWhenTheProgramEndsEarly) {
  const Outcome run = Run(BySteps("0,1,100"), "5 4 exit");
  EXPECT_EQ(run.status, 7);
  EXPECT_THAT(run.err, HasSubstr("3 of 100 steps recorded"));
  const Trace trace = Only();
  EXPECT_EQ(trace.steps().size(), 3u);  // 1 to 3; the fourth was cut off
  EXPECT_EQ(Ranges(trace).at("step"), 3);

  std::filesystem::remove_all(log_);
  EXPECT_EQ(Run(ByNvtx() + "STEPSCOPE_DURATION_MS=60000", "100 8").status, 0);
  EXPECT_GE(Ranges(Only()).at("forward"), 3);
}

TEST_F(InjectedProgramTest, AWindowMayBeOfAnyThread) {
  EXPECT_EQ(Run(BySteps("0,1,2"), "5 2 thread").status, 0);
  const Trace trace = Only();
  ASSERT_EQ(trace.steps().size(), 2u);
  const Thread thread = trace.threads()[trace.steps()[0].thread];
  EXPECT_NE(thread.pid, thread.tid);
}

TEST_F(InjectedProgramTest, EndsWellWhileAThreadGoesOnStepping) {
  const Outcome run = Run(BySteps("0,1,100000"), "20 5 running");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_GT(Ranges(Only()).at("step"), 5);
}

TEST_F(InjectedProgramTest, ForkedChildrenRunAndWriteNothing) {
  const Outcome run = Run(BySteps("1,1,2"), "6 2 fork");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, Not(HasSubstr("a child failed")));
  const auto ranges = Ranges(Only());
  EXPECT_EQ(ranges.at("step"), 2);
  EXPECT_FALSE(ranges.contains("of a child"));

  std::filesystem::remove_all(log_);
  EXPECT_EQ(Run(ByNvtx() + "STEPSCOPE_DURATION_MS=60000", "100 4 fork").status,
            0);
  EXPECT_FALSE(Ranges(Only()).contains("of a child"));
}

TEST_F(InjectedProgramTest, AProgramThatDiesDiesAsWithoutUs) {
  const Outcome plain = Run("", "4 2 throw");
  const Outcome injected = Run(BySteps("0,1,100"), "4 2 throw");
  EXPECT_EQ(injected.status, plain.status);
  EXPECT_NE(injected.status, 0);
  EXPECT_THAT(injected.err, HasSubstr("the program's own"));
  EXPECT_EQ(Run(BySteps("0,1,100"), "4 2 _exit").status, 3);
}

TEST_F(InjectedProgramTest, AnswersTheCudaDriverToo) {
  const Outcome run =
      Run("CUDA_INJECTION64_PATH='" INJECTION "' STEPSCOPE_LOG_DIR='" + log_ +
              "' STEPSCOPE_STEP_RANGE=step STEPSCOPE_SCHEDULE=1,1,2",
          "6 2 cuda");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("InitializeInjection gives 1\n"));
  // NVTX found the same library.
  EXPECT_EQ(Ranges(Only()).at("step"), 2);

  // With both variables set, there is still one window.
  std::filesystem::remove_all(log_);
  EXPECT_EQ(Run(BySteps("1,1,2") + "CUDA_INJECTION64_PATH='" INJECTION "'",
                "6 2 cuda")
                .status,
            0);
  EXPECT_EQ(Ranges(Only()).at("step"), 2);
}

TEST_F(InjectedProgramTest, SaysWhyNothingWasRecorded) {
  const Outcome no_dir = Run("NVTX_INJECTION64_PATH='" INJECTION "'", "2 1");
  EXPECT_EQ(no_dir.status, 0);
  EXPECT_EQ(no_dir.out, "the program's own output\n");
  EXPECT_THAT(no_dir.err, HasSubstr("STEPSCOPE_LOG_DIR is not set"));

  const Outcome wrong = Run(ByNvtx() + "STEPSCOPE_DURATION_MS=soon", "2 1");
  EXPECT_EQ(wrong.status, 0);
  EXPECT_THAT(wrong.err, HasSubstr("STEPSCOPE_DURATION_MS is \"soon\""));

  const Outcome no_range =
      Run(ByNvtx() + "STEPSCOPE_STEP_RANGE=iteration", "2 1");
  EXPECT_EQ(no_range.status, 0);
  EXPECT_THAT(no_range.err, HasSubstr("without an NVTX range \"iteration\""));

  const Outcome too_short = Run(ByNvtx() + "STEPSCOPE_START_MS=50000", "2 1");
  EXPECT_EQ(too_short.status, 0);
  EXPECT_THAT(too_short.err, HasSubstr("ended before the 50000 ms"));
  EXPECT_THAT(FilesLike(""), IsEmpty());
}

TEST_F(InjectedProgramTest, RunsOnWhereNothingCanBeWritten) {
  folder_.Write("log dir", "a file where the folder should be");
  const Outcome run = Run(BySteps("0,1,2"), "5 1");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("cannot write to log_dir"));
}

}  // namespace
}  // namespace stepscope::injected_program_test
