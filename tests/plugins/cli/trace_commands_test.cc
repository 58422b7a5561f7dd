// Runs `stepscope info`, `top` and `convert` as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/export.h>
#include <stepscope/read.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "support/random_trace.h"
#include "support/shell.h"
#include "support/temp_folder.h"
#include "support/trace_equal.h"

namespace stepscope::trace_commands_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TraceCommandsTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' " + words, folder_);
  }

  // Writes a trace to a file and returns its path.
  std::string Write(const Trace& trace, const std::string& name) {
    const std::string path = folder_.At(name);
    EXPECT_TRUE(WriteTrace(trace, {}, Format::kChromeKineto, path).ok());
    return path;
  }

  TempFolder folder_;
  const std::string trace_ =
      STEPSCOPE_TEST_DATA "/traces/resnet50_v100_workers0.pt.trace.json.gz";
};

TEST_F(TraceCommandsTest, InfoSaysWhatIsInATrace) {
  const Outcome run = Run("info " + trace_);
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("6 x 174.829 ms"));
  EXPECT_THAT(run.out, HasSubstr("8772 kernels, busy 591.532 ms"));
  EXPECT_EQ(run.err, "");
}

TEST_F(TraceCommandsTest, InfoOfSeveralTracesIsOneListOfJson) {
  const Outcome run = Run("info --format json " + trace_ + " " + trace_);
  EXPECT_EQ(run.status, 0);
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  ASSERT_FALSE(parser.parse(run.out).get(list)) << run.out;
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(int64_t(list.at(1)["steps"]["count"]), 6);
}

TEST_F(TraceCommandsTest, InfoReadsOnWhereOneTraceIsNone) {
  const Outcome run = Run("info " + folder_.At("none.json") + " " + trace_);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("6 x 174.829 ms"));
  EXPECT_THAT(run.err, HasSubstr("none.json"));
}

TEST_F(TraceCommandsTest, TopPrintsTablesAndCsv) {
  const Outcome text = Run("top --limit 3 " + trace_);
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("kernels: "));
  EXPECT_THAT(text.out, HasSubstr("GPU self"));
  const Outcome csv = Run("top --table kernels --format csv " + trace_);
  EXPECT_EQ(csv.status, 0);
  EXPECT_THAT(csv.out, StartsWith("table,name,shape,calls,"));
  EXPECT_EQ(csv.out.find("\nops,"), std::string::npos);
  EXPECT_THAT(csv.out, HasSubstr("\nkernels,"));
}

TEST_F(TraceCommandsTest, TopSaysThatThereAreNoGpuTimesToSortBy) {
  const std::string recorded =
      STEPSCOPE_TEST_DATA "/traces/gloo_cpu_rank34of300.json.gz";
  const Outcome by_gpu = Run("top --by gpu " + recorded);
  EXPECT_EQ(by_gpu.status, 0);
  EXPECT_THAT(by_gpu.err, HasSubstr("no GPU activity was recorded: sorted by "
                                    "self time on the host"));
  EXPECT_EQ(by_gpu.out, Run("top " + recorded).out);
  EXPECT_EQ(Run("top --by gpu " + trace_).err, "");
}

// Uses a public recording from an MI300X with four kernels that Inductor
// generated.
TEST_F(TraceCommandsTest, TopNamesTheOperatorsOfCompiledKernels) {
  const std::string recorded =
      STEPSCOPE_TEST_DATA "/traces/compiled_mi300x_triton.json.gz";
  const Outcome text = Run("top --table kernels " + recorded);
  EXPECT_EQ(text.status, 0) << text.err;
  // A long name is cut in the middle.
  EXPECT_THAT(text.out, HasSubstr("  add + mean + mul + pow + rsqrt (co"));
  EXPECT_THAT(text.out, HasSubstr("mul_pow_rsqrt_0\n"));
  const Outcome json = Run("top --table kernels --format json " + recorded);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSERT_EQ(parser.parse(json.out).get(root), simdjson::SUCCESS);
  size_t compiled = 0;
  for (simdjson::dom::element row :
       simdjson::dom::array(root["kernels"]["rows"])) {
    simdjson::dom::array ops;
    if (row["fused_ops"].get(ops) != simdjson::SUCCESS) continue;
    ++compiled;
    EXPECT_THAT(std::string(std::string_view(row["code_file"])),
                StartsWith("/tmp/torchinductor_root/"));
    if (std::string_view(row["name"]) ==
        "triton_poi_fused__unsafe_view_mul_silu_2") {
      std::vector<std::string> names;
      for (std::string_view op : ops) names.emplace_back(op);
      EXPECT_EQ(names,
                (std::vector<std::string>{"_unsafe_view", "mul", "silu"}));
    }
  }
  EXPECT_EQ(compiled, 4u);
}

TEST_F(TraceCommandsTest, ConvertKeepsTheTraceInEveryChromeDialect) {
  const Trace trace = RandomTrace({.seed = 4});
  const std::string in = Write(trace, "in.json");
  for (const char* name :
       {"a.json.gz", "b.pt.trace.json", "c.pt.trace.json.gz", "d.json"}) {
    const std::string out = folder_.At(name);
    const Outcome run = Run("convert " + in + " " + out);
    EXPECT_EQ(run.status, 0) << run.err;
    absl::StatusOr<Trace> again = ReadTrace(out);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_TRUE(TraceEquals(trace, *again)) << name;
  }
  EXPECT_THAT(ReadBytes(folder_.At("b.pt.trace.json")),
              HasSubstr("\"flavour\": \"tb\""));
  EXPECT_THAT(ReadBytes(folder_.At("d.json")),
              HasSubstr("\"flavour\": \"kineto\""));
}

TEST_F(TraceCommandsTest, ConvertWritesTextXSpaceAndAdvice) {
  const std::string text = folder_.At("out.txt");
  EXPECT_EQ(Run("convert " + trace_ + " " + text).status, 0);
  EXPECT_THAT(ReadBytes(text), HasSubstr("\nkernel "));
  EXPECT_EQ(Run("convert " + trace_ + " " + folder_.At("h.xplane.pb")).status,
            0);
  EXPECT_THAT(ReadBytes(folder_.At("h.xplane.pb")), HasSubstr("/device:GPU:0"));
  EXPECT_THAT(ReadBytes(folder_.At("h.xplane.pb")),
              HasSubstr("stepscope: input wait"));
  EXPECT_EQ(
      Run("convert --no-input-wait " + trace_ + " " + folder_.At("w.xplane.pb"))
          .status,
      0);
  EXPECT_THAT(ReadBytes(folder_.At("w.xplane.pb")),
              Not(HasSubstr("stepscope: input wait")));
  const std::string advised = folder_.At("advised.txt");
  EXPECT_EQ(Run("convert --advice " + trace_ + " " + advised).status, 0);
  EXPECT_EQ(ReadBytes(text).find("\nannotation "), std::string::npos);
  EXPECT_THAT(ReadBytes(advised), HasSubstr("\nannotation "));
}

// The facts about a kernel that both an XSpace and a Chrome trace contain.
using KernelFacts =
    std::tuple<std::string, int64_t, int64_t, int32_t, int64_t,
               std::array<int32_t, 3>, std::array<int32_t, 3>, int64_t>;

std::vector<KernelFacts> KernelsOf(const Trace& trace) {
  std::vector<KernelFacts> facts;
  const int64_t start = trace.kernels().front().begin_ns;
  for (const Kernel& kernel : trace.kernels()) {
    facts.emplace_back(trace.name(kernel.name), kernel.begin_ns - start,
                       kernel.end_ns - start, kernel.device, kernel.stream,
                       kernel.grid, kernel.block, kernel.correlation);
  }
  std::ranges::sort(facts);
  return facts;
}

TEST_F(TraceCommandsTest, ConvertCarriesAForeignXSpaceToChromeAndBack) {
  const std::string in =
      STEPSCOPE_TEST_DATA "/traces/xplane/jax_conv_mi300x.xplane.pb";
  absl::StatusOr<Trace> foreign = ReadTrace(in);
  ASSERT_TRUE(foreign.ok()) << foreign.status().message();
  for (const char* name : {"a.json.gz", "a.pt.trace.json.gz"}) {
    const std::string chrome = folder_.At(name);
    const Outcome there = Run("convert " + in + " " + chrome);
    ASSERT_EQ(there.status, 0) << there.err;
    absl::StatusOr<Trace> read = ReadTrace(chrome);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_TRUE(TraceEquals(*foreign, *read)) << name;

    const std::string back = folder_.At("back.xplane.pb");
    const Outcome again = Run("convert --force " + chrome + " " + back);
    ASSERT_EQ(again.status, 0) << again.err;
    absl::StatusOr<Trace> last = ReadTrace(back);
    ASSERT_TRUE(last.ok()) << last.status().message();
    EXPECT_EQ(KernelsOf(*last), KernelsOf(*foreign));
    EXPECT_EQ(last->copies().size(), foreign->copies().size());
    EXPECT_EQ(last->memsets().size(), foreign->memsets().size());
    EXPECT_EQ(last->ops().size(), foreign->ops().size());
    EXPECT_EQ(last->runtime_calls().size(), foreign->runtime_calls().size());
    EXPECT_EQ(last->run().devices.size(), foreign->run().devices.size());
  }
}

TEST_F(TraceCommandsTest, ConvertSaysWhatItWroteAndReplacesNothingUnasked) {
  const std::string in = Write(RandomTrace({.seed = 4}), "in.json");
  const std::string out = folder_.At("out.txt");
  const Outcome first = Run("convert " + in + " " + out);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, StartsWith("wrote " + out + ": text, "));
  const std::string bytes = ReadBytes(out);
  const Outcome again = Run("convert " + trace_ + " " + out);
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr(out + " exists; --force replaces it"));
  EXPECT_EQ(ReadBytes(out), bytes);
  EXPECT_EQ(Run("convert --force " + trace_ + " " + out).status, 0);
  EXPECT_NE(ReadBytes(out), bytes);
  EXPECT_EQ(Run("convert " + in + " " + folder_.At("no/folder.json")).status,
            1);
}

// Returns the trace of one of two ranks: three steps with an all-reduce each,
// which rank 1 starts 200 us later. The rank's clock is `ahead_us` ahead.
std::string RankOfTwo(int rank, int64_t ahead_us) {
  std::string events;
  const auto add = [&](const std::string& cat, const std::string& name,
                       const std::string& place, int64_t us, int64_t length,
                       const std::string& args) {
    events += std::string(events.empty() ? "" : ",\n") +
              R"({"ph": "X", "cat": ")" + cat + R"(", "name": ")" + name +
              R"(", )" + place + R"(, "ts": )" + std::to_string(us + ahead_us) +
              R"(, "dur": )" + std::to_string(length) + R"(, "args": {)" +
              args + "}}";
  };
  for (int step = 0; step < 3; ++step) {
    const int64_t at = step * 10'000;
    const std::string link = "\"correlation\": " + std::to_string(step + 1);
    add("user_annotation", "ProfilerStep#" + std::to_string(step),
        "\"pid\": 1, \"tid\": 1", at, 10'000, "");
    add("cuda_runtime", "cudaLaunchKernel", "\"pid\": 1, \"tid\": 1", at + 100,
        10, link);
    add("kernel", "ncclKernel_AllReduce_RING_LL", "\"pid\": 0, \"tid\": 7",
        at + 1000 + rank * 200, 3000 - rank * 200,
        link + R"(, "device": 0, "stream": 7)");
  }
  return R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl",
    "rank": )" +
         std::to_string(rank) + R"(, "world_size": 2},
    "deviceProperties": [{"id": 0, "name": "X"}], "traceEvents": [)" +
         events + "]}";
}

TEST_F(TraceCommandsTest, ConvertMakesOneTimelineOfTheRanksOfAFolder) {
  folder_.Write("ranks/rank0.json", RankOfTwo(0, 0));
  folder_.Write("ranks/rank1.json", RankOfTwo(1, 5'000'000));
  const std::string out = folder_.At("merged.json");
  const Outcome run = Run("convert " + folder_.At("ranks") + " " + out);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "wrote " + out +
                ": 2 ranks on one clock, within 0 us (median); 3 collectives "
                "joined by arrows\n");
  simdjson::dom::parser parser;
  simdjson::dom::element file;
  ASSERT_FALSE(parser.load(out).get(file));
  // By rank: the ends of its collectives, in order.
  std::map<int64_t, std::vector<double>> ends;
  size_t starts = 0, stops = 0;
  for (const simdjson::dom::element event :
       simdjson::dom::array(file["traceEvents"])) {
    const std::string_view category =
        event["cat"].error() ? "" : std::string_view(event["cat"]);
    if (category == "kernel") {
      ends[int64_t(event["pid"])].push_back(double(event["ts"]) +
                                            double(event["dur"]));
    }
    if (category != "collective") continue;
    (std::string_view(event["ph"]) == "s" ? starts : stops) += 1;
  }
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends.begin()->second, ends.rbegin()->second);
  EXPECT_EQ(starts, 3u);
  EXPECT_EQ(stops, 3u);
  // info says that the timeline was merged.
  EXPECT_THAT(Run("info " + out).out, HasSubstr("merged-ranks: "));
  // Other formats hold a single rank.
  EXPECT_THAT(
      Run("convert " + folder_.At("ranks") + " " + folder_.At("m.txt")).err,
      HasSubstr("holds 2 traces; choose one of them"));
}

TEST_F(TraceCommandsTest, RanksThatShareNoCollectiveKeepTheirClocks) {
  std::filesystem::create_directories(folder_.At("ranks"));
  Write(RandomTrace({.seed = 4, .rank = 0}), "ranks/rank0.json");
  Write(RandomTrace({.seed = 5, .rank = 1}), "ranks/rank1.json");
  const Outcome run = Run("convert " + folder_.At("ranks") + " " +
                          folder_.At("merged.json.gz"));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(": 2 ranks, clocks as recorded: "));
}

TEST_F(TraceCommandsTest, ConvertNeverWritesOntoItsInput) {
  const std::string in = Write(RandomTrace({.seed = 4}), "same.json");
  const std::string before = ReadBytes(in);
  const Outcome run = Run("convert " + in + " " + in);
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(ReadBytes(in), before);
}

TEST_F(TraceCommandsTest, ConvertNeverReplacesARankOfItsInput) {
  folder_.Write("ranks/rank0.json", RankOfTwo(0, 0));
  folder_.Write("ranks/rank1.json", RankOfTwo(1, 5'000'000));
  const Outcome run = Run("convert --force " + folder_.At("ranks") + " " +
                          folder_.At("ranks/rank0.json"));
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err,
              HasSubstr("rank0.json is read and cannot be written to"));
  EXPECT_EQ(ReadBytes(folder_.At("ranks/rank0.json")), RankOfTwo(0, 0));
}

TEST_F(TraceCommandsTest, NoResultReplacesATraceThatIsRead) {
  const std::string in = Write(RandomTrace({.seed = 4}), "in.json");
  const std::string before = ReadBytes(in);
  const std::string output = " -o " + in;
  for (const std::string& words :
       {"analyze " + in, "analyze " + folder_.At(""), "report " + in,
        "top " + in, "info " + in, "compare " + trace_ + " " + in,
        "what-if " + in + " workers=1"}) {
    const Outcome run = Run(words + output);
    EXPECT_EQ(run.status, 2) << words;
    EXPECT_THAT(run.err, HasSubstr("cannot be written to")) << words;
    EXPECT_EQ(ReadBytes(in), before) << words;
  }
  // An earlier result is replaced.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Run("info " + in + " -o " + folder_.At("info.txt")).status, 0);
  }
}

// A job whose rank 1 was killed while it wrote, and whose rank 2 wrote nothing.
TEST_F(TraceCommandsTest, RanksThatAreMissingOrCutOffAreNamed) {
  folder_.Write("ranks/rank0.json", RankOfTwo(0, 0));
  const std::string whole = RankOfTwo(1, 5'000'000);
  folder_.Write("ranks/rank1.json", whole.substr(0, whole.size() - 20));
  folder_.Write("ranks/rank2.json", "garbage");
  const std::string ranks = folder_.At("ranks");
  const Outcome merged =
      Run("convert " + ranks + " " + folder_.At("merged.json"));
  EXPECT_EQ(merged.status, 1);
  EXPECT_THAT(merged.out, HasSubstr("2 ranks"));
  EXPECT_THAT(merged.err, HasSubstr("rank1.json: the file is truncated"));
  EXPECT_THAT(merged.err, HasSubstr("skipped " + ranks + "/rank2.json"));
  const Outcome info = Run("info " + ranks);
  EXPECT_EQ(info.status, 1);
  EXPECT_THAT(info.err, HasSubstr("skipped " + ranks + "/rank2.json"));
}

TEST_F(TraceCommandsTest, ADashIsTheTraceOnStandardInput) {
  const auto piped = [&](const std::string& words) {
    // Without the braces, the empty standard input that RunShell() sets would
    // replace the pipe.
    return RunShell(
        "{ cat " + trace_ + " | '" STEPSCOPE_PROGRAM "' " + words + "; }",
        folder_);
  };
  for (const char* words :
       {"info -", "top -", "analyze -", "what-if - workers=1"}) {
    const Outcome run = piped(words);
    EXPECT_EQ(run.status, 0) << words << run.err;
    EXPECT_EQ(run.err, "") << words;
    EXPECT_NE(run.out, "") << words;
  }
  EXPECT_EQ(piped("top --format csv -").out,
            Run("top --format csv " + trace_).out);
  EXPECT_EQ(piped("convert - " + folder_.At("piped.txt")).status, 0);
  EXPECT_EQ(Run("info -").status, 1);  // nothing to read
}

TEST_F(TraceCommandsTest, AFolderWithOneTraceStandsForIt) {
  std::filesystem::create_directories(folder_.At("runs"));
  Write(RandomTrace({.seed = 4}), "runs/a.json");
  EXPECT_EQ(Run("top " + folder_.At("runs")).status, 0);
  EXPECT_EQ(
      Run("convert " + folder_.At("runs") + " " + folder_.At("o.pb")).status,
      0);
  Write(RandomTrace({.seed = 5, .rank = 1}), "runs/b.json");
  const Outcome several = Run("top " + folder_.At("runs"));
  EXPECT_EQ(several.status, 1);
  EXPECT_THAT(several.err, HasSubstr("holds 2 traces; choose one of them: "));
  EXPECT_THAT(several.err, HasSubstr("runs/a.json, "));
}

TEST_F(TraceCommandsTest, WrongUsageIsStatusTwoAndNamesTheOptions) {
  const auto expect = [&](const std::string& words, const std::string& says) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 2) << words;
    EXPECT_THAT(run.err, HasSubstr(says)) << words;
    // The first line is the error; the usage follows.
    EXPECT_THAT(run.err, testing::StartsWith("stepscope: ")) << words;
    EXPECT_EQ(run.err.find("\nusage: stepscope "), run.err.find('\n'));
    EXPECT_EQ(run.out, "") << words;
  };
  expect("info", "info needs a trace");
  expect("info --format xml t", "text or json, not 'xml'");
  expect("info --fromat json t", "did you mean '--format'?");
  expect("info --format", "--format needs a value");
  expect("top", "top needs one trace");
  expect("top a b", "top needs one trace");
  expect("top --limit many a", "--limit must be a whole number");
  expect("analyze --cores 999999999999 a",
         "--cores must be at most 2147483647, not '999999999999'");
  expect("top --by-shape=1 a", "--by-shape takes no value");
  expect("top --by size a", "self, total, calls or gpu, not 'size'");
  expect("convert a", "two names");
  expect("convert a b.csv", "cannot tell the format");
  expect("convert --flavour x a b.json", "kineto or tb");
  expect("convert --flavour tb a b.txt", "--flavour is for Chrome traces");
  expect("convert --no-input-wait a b.json", "--no-input-wait is for XSpace");
  const Outcome unknown = Run("confert a b");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.err,
            "stepscope: unknown command 'confert'; did you mean 'convert'?\n");
  EXPECT_THAT(Run("top").err, HasSubstr("[--by=self|total|calls|gpu]"));
}

TEST_F(TraceCommandsTest, HelpIsPrinted) {
  for (const char* command : {"info", "top", "convert"}) {
    const Outcome run = Run(std::string(command) + " --help");
    EXPECT_EQ(run.status, 0);
    EXPECT_THAT(run.out,
                StartsWith(std::string("Usage: stepscope ") + command));
  }
}

TEST_F(TraceCommandsTest, UnreadableInputIsStatusOne) {
  for (const std::string& words :
       {"top " + folder_.At("none.json"),
        "convert " + folder_.At("none.json") + " " + folder_.At("o.json")}) {
    const Outcome run = Run(words);
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr("none.json"));
  }
}

}  // namespace
}  // namespace stepscope::trace_commands_test
