#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "doctor/doctor_lines.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace stepscope::doctor_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ContainsRegex;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kAnswer =
    "python 3.11.2\n"
    "torch 2.11.0+cu130\n"
    "torch_folder /site/torch/lib\n"
    "tensorboard 2.21.0\n"
    "plugin torch_tb_profiler 0.4.3\n"
    "plugin xprof 2.24.2\n";

// Returns the lines for a single Python that gives this answer.
std::vector<DoctorLine> LinesOf(const std::string& answer) {
  const AskedPython python = {"py", ParsePackages(answer)};
  return PackageLines(python, python);
}

const DoctorLine& LineOf(const std::vector<DoctorLine>& lines,
                         const std::string& topic) {
  for (const DoctorLine& line : lines) {
    if (line.topic == topic) return line;
  }
  ADD_FAILURE() << "no line about " << topic;
  static const DoctorLine kNone;
  return kNone;
}

TEST(ParsePackagesTest, ReadsWhatThePythonSaid) {
  const auto packages = ParsePackages(kAnswer);
  ASSERT_TRUE(packages.ok());
  EXPECT_EQ(packages->python_version, "3.11.2");
  EXPECT_EQ(packages->torch_version, "2.11.0+cu130");
  EXPECT_EQ(packages->torch_folder, "/site/torch/lib");
  EXPECT_EQ(packages->tensorboard_version, "2.21.0");
  EXPECT_THAT(packages->tensorboard_plugins,
              ElementsAre("torch_tb_profiler 0.4.3", "xprof 2.24.2"));
}

TEST(ParsePackagesTest, SomethingThatIsNoPythonGivesNoAnswer) {
  EXPECT_FALSE(ParsePackages("").ok());
  EXPECT_FALSE(ParsePackages("hello\nworld of wonders\n").ok());
}

TEST(PackageLinesTest, AWholeInstallationNeedsNothing) {
  for (const DoctorLine& line : LinesOf(kAnswer)) {
    EXPECT_TRUE(line.ok) << line.topic;
    EXPECT_EQ(line.remedy, "");
  }
}

TEST(PackageLinesTest, EachMissingPackageHasItsRemedy) {
  const auto lines = LinesOf("python 3.9.1\n");
  for (const char* topic : {"torch", "TensorBoard", "plugins"}) {
    EXPECT_FALSE(LineOf(lines, topic).ok) << topic;
    EXPECT_THAT(LineOf(lines, topic).remedy, StartsWith("pip install"));
  }
}

TEST(PackageLinesTest, EachLineNamesItsPython) {
  const auto same = LinesOf(kAnswer);
  EXPECT_THAT(LineOf(same, "Python").found, HasSubstr("(py)"));
  EXPECT_THAT(LineOf(same, "TensorBoard").found, HasSubstr("(py)"));
  EXPECT_THAT(LineOf(same, "plugins").found, HasSubstr("(py)"));
  EXPECT_THAT(same, Not(Contains(Field(&DoctorLine::topic, "viewers"))));
  const auto none = LinesOf("python 3.9.1\n");
  EXPECT_THAT(LineOf(none, "torch").found, HasSubstr("installed in py"));
  EXPECT_THAT(LineOf(none, "TensorBoard").found, HasSubstr("installed in py"));
}

TEST(PackageLinesTest, TorchAndTheViewersMayHaveAPythonEach) {
  const auto lines = PackageLines(
      {"trains",
       ParsePackages("python 3.11.2\ntorch 2.11.0\ntorch_folder /l\n")},
      {"views", ParsePackages("python 3.12.1\ntensorboard 2.21.0\n"
                              "plugin xprof 2.24.2\n")});
  EXPECT_THAT(lines, Each(Field(&DoctorLine::ok, true)));
  EXPECT_EQ(LineOf(lines, "Python").found, "3.11.2 (trains)");
  EXPECT_EQ(LineOf(lines, "viewers").found, "3.12.1 (views)");
  EXPECT_EQ(LineOf(lines, "TensorBoard").found, "2.21.0 (views)");
  EXPECT_EQ(LineOf(lines, "plugins").found, "xprof 2.24.2 (views)");
}

TEST(PackageLinesTest, AViewersPythonThatDoesNotRunLeavesTorchAlone) {
  const auto lines = PackageLines({"trains", ParsePackages(kAnswer)},
                                  {"views", ParsePackages("")});
  EXPECT_TRUE(LineOf(lines, "torch").ok);
  EXPECT_FALSE(LineOf(lines, "viewers").ok);
  EXPECT_EQ(LineOf(lines, "viewers").found,
            "views does not answer like a Python");
  EXPECT_THAT(LineOf(lines, "viewers").remedy, HasSubstr("--viewers"));
  EXPECT_THAT(lines, Not(Contains(Field(&DoctorLine::topic, "TensorBoard"))));
}

TEST(PackageLinesTest, TheDeprecatedPluginAloneIsNotEnough) {
  const auto lines = LinesOf("python 3.11.2\nplugin torch_tb_profiler 0.4.3\n");
  EXPECT_FALSE(LineOf(lines, "plugins").ok);
  EXPECT_THAT(LineOf(lines, "plugins").found,
              AllOf(HasSubstr("torch_tb_profiler"), HasSubstr("no xprof")));
}

TEST(PackageLinesTest, XprofAloneIsEnough) {
  for (const char* name : {"xprof", "tensorboard_plugin_profile"}) {
    const auto lines =
        LinesOf("python 3.11.2\nplugin " + std::string(name) + " 2.24.2\n");
    EXPECT_TRUE(LineOf(lines, "plugins").ok) << name;
  }
}

TEST(DoctorTextTest, IsOneLineForEachCheck) {
  EXPECT_EQ(DoctorText({{"driver", "CUDA 13.0", "", true},
                        {"CUPTI", "none", "install it", false},
                        {"rest", "not looked at", "", false}}),
            "ok   driver  CUDA 13.0\n"
            "fix  CUPTI   none -> install it\n"
            "--   rest    not looked at\n");
  EXPECT_EQ(DoctorText({{"driver", "none", "buy one", false, true}}),
            "--   driver  none -> buy one\n");
}

// Runs the program on machines that consist of a fake CUPTI, a fake driver, and
// a script that answers like a Python.
class DoctorProgramTest : public testing::Test {
 protected:
  int Run(const std::string& environment, const std::string& words) {
    const Outcome run =
        RunShell("env -u VIRTUAL_ENV -u STEPSCOPE_PYTHON " + environment +
                     " '" STEPSCOPE_PROGRAM "' doctor " + words,
                 folder_);
    out_ = run.out + run.err;
    return run.status;
  }
  std::string Python(const std::string& answer,
                     const std::string& name = "python") {
    const std::string path =
        folder_.Write(name, "#!/bin/sh\ncat <<'END'\n" + answer + "END\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  TempFolder folder_;
  std::string out_;
};

TEST_F(DoctorProgramTest, NamesAPythonThatDoesNotRun) {
  EXPECT_EQ(Run("", "--python /nowhere/python"), 1);
  EXPECT_THAT(out_, HasSubstr("fix  Python        /nowhere/python does not run "
                              "-> name the Python"));
}

TEST_F(DoctorProgramTest, AnotherProgramIsNoPython) {
  EXPECT_EQ(Run("", "--python=true"), 1);
  EXPECT_THAT(out_, HasSubstr("true does not answer like a Python"));
}

TEST_F(DoctorProgramTest, TheQuestionIsPythonThatRuns) {
  if (RunShell("python3 -c ''", folder_).status != 0) {
    GTEST_SKIP() << "no python3 here";
  }
  Run("", "--python python3");
  EXPECT_THAT(
      out_, ContainsRegex("ok   Python        3\\.[0-9.]+[^ ]* \\(python3\\)"));
  EXPECT_THAT(out_, Not(ContainsRegex("plugins.*tensorboard [0-9]")));
}

TEST_F(DoctorProgramTest, AsksTheViewersOfTheirOwnPython) {
  Run("", "--python " + Python("python 3.11.2\ntorch 2.11.0\n", "trains") +
              " --viewers=" + Python(kAnswer, "views"));
  EXPECT_THAT(out_, ContainsRegex("Python +3\\.11\\.2 \\([^ ]*/trains\\)"));
  EXPECT_THAT(out_, ContainsRegex("ok   viewers +3\\.11\\.2 .*/views\\)"));
  EXPECT_THAT(out_, ContainsRegex("ok   TensorBoard +2\\.21\\.0 .*/views\\)"));
}

TEST_F(DoctorProgramTest, AsksThePythonThatTheEnvironmentNames) {
  const std::string named =
      "STEPSCOPE_PYTHON=" + Python("python 3.11.2\n", "named");
  Run(named + " VIRTUAL_ENV=/nowhere", "");
  EXPECT_THAT(out_, ContainsRegex("ok   Python +3\\.11\\.2 \\([^ ]*/named\\)"));
  EXPECT_THAT(out_, ContainsRegex("torch +not installed in [^ ]*/named -> "));
  Run(named, "--python " + Python(kAnswer, "given"));
  EXPECT_THAT(out_, ContainsRegex("ok   Python +3\\.11\\.2 .*/given\\)"));
  Run("STEPSCOPE_PYTHON= VIRTUAL_ENV=/nowhere", "");
  EXPECT_THAT(out_, HasSubstr("/nowhere/bin/python does not run"));
}

TEST_F(DoctorProgramTest, WrongUsageIsStatusTwo) {
  EXPECT_EQ(Run("", "--pyton x"), 2);
  EXPECT_THAT(out_, HasSubstr("did you mean '--python'?"));
  EXPECT_EQ(Run("", "--viewer x"), 2);
  EXPECT_THAT(out_, HasSubstr("did you mean '--viewers'?"));
  EXPECT_EQ(Run("", "--python a --viewers"), 2);
  EXPECT_THAT(out_, HasSubstr("--viewers needs a value"));
  EXPECT_EQ(Run("", "runs/x"), 2);
  EXPECT_EQ(Run("", "--python"), 2);
  EXPECT_EQ(Run("", "--help"), 0);
}

#ifdef STEPSCOPE_FAKE_CUPTI
constexpr const char* kFakes =
    "STEPSCOPE_CUPTI_LIBRARY='" STEPSCOPE_FAKE_CUPTI
    "' STEPSCOPE_CUDA_LIBRARY='" STEPSCOPE_FAKE_CUPTI "'";

TEST_F(DoctorProgramTest, AHealthyMachineIsStatusZero) {
  EXPECT_EQ(Run(kFakes, "--python " + Python(kAnswer)), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("ok   driver        CUDA 13.0, 1 device (Fake "
                              "A100)\n"));
  EXPECT_THAT(out_, HasSubstr("ok   subscription  free\n"));
  EXPECT_THAT(out_,
              HasSubstr("ok   permissions   GPU records can be collected"));
  EXPECT_THAT(out_, HasSubstr("ok   torch         2.11.0+cu130"));
  EXPECT_THAT(out_, Not(HasSubstr("fix")));
}

TEST_F(DoctorProgramTest, AMachineWithoutAGpuNeedsNoneUnlessAskedFor) {
  const std::string none = "STEPSCOPE_CUPTI_LIBRARY='" STEPSCOPE_FAKE_CUPTI
                           "' STEPSCOPE_CUDA_LIBRARY=/nowhere/libcuda.so";
  const std::string python = "--python " + Python(kAnswer);
  EXPECT_EQ(Run(none, python), 0) << out_;
  EXPECT_THAT(out_, HasSubstr("--   driver        no NVIDIA driver found -> "));
  EXPECT_THAT(out_, Not(HasSubstr("fix")));
  EXPECT_EQ(Run(none, "--gpu " + python), 1);
  EXPECT_THAT(out_, HasSubstr("fix  driver        no NVIDIA driver found"));
}

TEST_F(DoctorProgramTest, WhoeverHoldsCuptiIsNamed) {
  EXPECT_EQ(Run(std::string(kFakes) + " FAKE_CUPTI_HOLDER='Nsight Systems'",
                "--python " + Python(kAnswer)),
            1);
  EXPECT_THAT(out_, HasSubstr("CUPTI is held by \"Nsight Systems\"; stop it"));
  EXPECT_THAT(out_, HasSubstr("--   permissions   skipped"));
}

TEST_F(DoctorProgramTest, ACuptiOfAnotherAgeIsRefused) {
  EXPECT_EQ(Run(std::string(kFakes) + " FAKE_CUPTI_VERSION=17",
                "--python " + Python(kAnswer)),
            1);
  EXPECT_THAT(out_, HasSubstr("is version 17"));
}

TEST_F(DoctorProgramTest, CuptiIsFoundBesideTorch) {
  namespace fs = std::filesystem;
  const fs::path site = folder_.At("site");
  fs::create_directories(site / "torch/lib");
  fs::create_directories(site / "nvidia/cu13/lib");
  // A copy, because the loader identifies an open file by its first name.
  fs::copy_file(STEPSCOPE_FAKE_CUPTI, site / "nvidia/cu13/lib/libcupti.so.13");
  const std::string python =
      Python("python 3.11.2\ntorch 2.11.0\ntorch_folder " +
             (site / "torch/lib").string() + "\n");
  Run("STEPSCOPE_CUDA_LIBRARY='" STEPSCOPE_FAKE_CUPTI "'",
      "--python " + python);
  EXPECT_THAT(out_, HasSubstr("ok   CUPTI         " + site.string() +
                              "/nvidia/cu13/lib/libcupti.so.13"));
}
#endif

}  // namespace
}  // namespace stepscope::doctor_test
