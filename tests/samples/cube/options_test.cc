#include "cube/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cube {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Error(const std::vector<std::string>& words) {
  return std::string(ParseOptions(words).status().message());
}

TEST(CubeOptionsTest, FlagsWithSeveralValuesAreCrossed) {
  absl::StatusOr<Options> options =
      ParseOptions({"--workers", "0,1", "--side=64", "--bf16", "off,on",
                    "--sweep-rounds", "3", "--sweep-csv", "runs a.csv"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  ASSERT_EQ(options->factors.size(), 2u);
  EXPECT_EQ(options->factors[0].flag, "--bf16");
  EXPECT_THAT(options->factors[0].levels, ElementsAre("off", "on"));
  EXPECT_EQ(options->factors[1].flag, "--workers");
  EXPECT_THAT(options->factors[1].levels, ElementsAre("0", "1"));
  EXPECT_EQ(options->base.Text(), "--side 64");
  EXPECT_EQ(options->rounds, 3);
  EXPECT_EQ(options->steps, 24);
  EXPECT_EQ(options->csv, "runs a.csv");
}

TEST(CubeOptionsTest, WhatMakesNoSenseIsRefused) {
  EXPECT_THAT(Error({"--workers", "1"}), HasSubstr("several values"));
  EXPECT_THAT(Error({"--workers", "0,,1"}), HasSubstr("empty value"));
  EXPECT_THAT(Error({"--workers", "0,1", "--sweep-rounds", "1"}),
              HasSubstr("at least 2"));
  EXPECT_THAT(Error({"--workers", "0,1", "--sweep-steps", "x"}),
              HasSubstr("at least 4"));
  EXPECT_THAT(Error({"--workers", "0,1", "--sweep-round", "3"}),
              HasSubstr("unknown flag --sweep-round"));
  EXPECT_THAT(Error({"workers"}), HasSubstr("'workers'"));
  std::string many = "0";
  for (int i = 1; i < 50; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(Error({"--a", many, "--b", many}), HasSubstr("2000"));
}

}  // namespace
}  // namespace cube
