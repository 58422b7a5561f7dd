#include "ladder/profile_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "samples/temporary_folder.h"

namespace ladder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string Advice(const std::string& gpu, const std::string& devices) {
  return "{\"version\": 1, \"has_gpu\": " + gpu +
         ", \"run\": {\"cpu_model\": \"Slow CPU\", \"usable_cores\": 2, "
         "\"torch_version\": \"2.11.0\", \"devices\": " +
         devices +
         "}, \"steps\": {\"mean_ms\": 50}, \"time_split_ms\": {\"data\": 10, "
         "\"compute\": 30, \"communication\": 5, \"sync\": 5}}";
}

TEST(ProfileFactsTest, TheSplitComesLongestFirst) {
  absl::StatusOr<ProfileFacts> facts = ParseProfile(Advice("false", "[]"), "x");
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_EQ(facts->step_ms, 50);
  EXPECT_THAT(facts->split,
              ElementsAre(Pair("compute", 30), Pair("data", 10),
                          Pair("communication", 5), Pair("sync", 5)));
  EXPECT_EQ(facts->machine, "Slow CPU, 2 cores; LibTorch 2.11.0");
}

TEST(ProfileFactsTest, OnlyAGpuIsBusy) {
  EXPECT_EQ(ParseProfile(Advice("false", "[]"), "x")->busy_frac, -1);
  absl::StatusOr<ProfileFacts> facts =
      ParseProfile(Advice("true", "[\"H100\"]"), "x");
  ASSERT_TRUE(facts.ok());
  EXPECT_DOUBLE_EQ(facts->busy_frac, 0.7);
  EXPECT_EQ(facts->machine, "Slow CPU, 2 cores; H100; LibTorch 2.11.0");
}

TEST(ProfileFactsTest, WhatIsNoAdviceIsNamed) {
  for (const char* text : {"", "[1]", "{}", "{\"steps\": {\"mean_ms\": 1}}"}) {
    absl::StatusOr<ProfileFacts> facts = ParseProfile(text, "rank0.json");
    EXPECT_TRUE(absl::IsDataLoss(facts.status())) << text;
    EXPECT_THAT(std::string(facts.status().message()), HasSubstr("rank0.json"));
  }
}

// Kernels are weighed by how long they run; one whose name says nothing counts
// as one without Tensor Cores.
TEST(ProfileFactsTest, TheTraceTellsWhatRanOnTensorCores) {
  resnet::TemporaryFolder folder;
  const std::string cycle = folder.path() + "/c0";
  std::filesystem::create_directories(cycle + "/advice");
  std::filesystem::create_directories(cycle + "/trace");
  std::ofstream(cycle + "/advice/rank0.json") << Advice("true", "[\"H100\"]");
  auto kernel = [](const char* name, int at, int us) {
    return "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" +
           std::string(name) +
           "\", \"pid\": 0, \"tid\": 7, \"ts\": " + std::to_string(at) +
           ", \"dur\": " + std::to_string(us) +
           ", \"args\": {\"device\": 0, \"stream\": 7}}";
  };
  std::ofstream(cycle + "/trace/rank0.json.gz")
      << "{\"schemaVersion\": 1, \"traceEvents\": ["
      << kernel("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn",
                1000, 30)
      << ", " << kernel("ampere_sgemm_128x64_nn", 1100, 50) << ", "
      << kernel("something_else", 1200, 20) << "]}";
  absl::StatusOr<ProfileFacts> facts =
      ReadProfile(cycle + "/advice/rank0.json");
  ASSERT_TRUE(facts.ok()) << facts.status().message();
  EXPECT_NEAR(facts->tensor_core_frac, 0.3, 1e-6);
}

}  // namespace
}  // namespace ladder
