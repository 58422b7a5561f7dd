// Reads files made to exhaust a reader. Memory must stay bounded, and the error
// or the loss must say what is wrong. Each file is read in a child process, of
// which the kernel reports the peak memory.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "exporters/chrome/chrome_text.h"

namespace stepscope::limits_test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// The peak includes the sanitizer's own memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kSanitizerBytes = 2048 * kMiB;
#else
constexpr int64_t kSanitizerBytes = 0;
#endif

class LimitsTest : public ChromeTextTest {
 protected:
  struct Outcome {
    int64_t peak_bytes = 0;  // peak of the whole child process
    std::string error;       // empty if the file could be read
    std::string losses;      // names
    int64_t ops = 0;
  };

  Outcome ReadApart(const std::string& path) {
    const std::string result = folder_.At("result");
    const pid_t child = fork();
    if (child == 0) {
      const absl::StatusOr<Trace> trace = ReadTrace(path);
      std::ofstream out(result);
      if (trace.ok()) {
        out << "ops " << trace->ops().size() << "\n";
        for (const Loss& loss : trace->losses()) out << loss.name << "\n";
      } else {
        out << "error " << std::string(trace.status().message()) << "\n";
      }
      out.close();
      _exit(0);
    }
    int status = 0;
    struct rusage used = {};
    EXPECT_EQ(wait4(child, &status, 0, &used), child);
    EXPECT_TRUE(WIFEXITED(status))
        << "the reader died of signal " << WTERMSIG(status);
    Outcome outcome;
    outcome.peak_bytes = used.ru_maxrss * 1024;
    std::ifstream in(result);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("error ")) {
        outcome.error = line.substr(6);
      } else if (line.starts_with("ops ")) {
        outcome.ops = std::stoll(line.substr(4));
      } else {
        outcome.losses += line + " ";
      }
    }
    return outcome;
  }

  // Writes a gzip file with `front`, `times` times 16 MiB of `filler`, and
  // `back`. It consists of several members, so that a gigabyte is written
  // quickly.
  std::string Bomb(const std::string& front, char filler, int times,
                   const std::string& back) {
    std::string bytes = Gzip(front);
    const std::string block = Gzip(std::string(16 * kMiB, filler));
    for (int i = 0; i < times; ++i) bytes += block;
    return folder_.Write("bomb.json.gz", bytes + Gzip(back));
  }

  const std::string event_ = XEvent("cpu_op", "one", "\"ts\": 1, \"dur\": 1");
};

TEST_F(LimitsTest, GigabyteOfBlanksIsReadInBoundedMemory) {
  const Outcome outcome = ReadApart(
      Bomb(R"({"traceEvents": [)" + event_ + ",", ' ', 64, event_ + "]}"));
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.ops, 2);
  EXPECT_LT(outcome.peak_bytes, 200 * kMiB + kSanitizerBytes);
}

TEST_F(LimitsTest, GigabyteOfOneNameCostsThatEvent) {
  const Outcome outcome = ReadApart(
      Bomb(R"({"traceEvents": [)" + event_ + R"(,{"ph": "X", "name": ")", 'x',
           64, "\"}," + event_ + "]}"));
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.ops, 2);
  EXPECT_EQ(outcome.losses, "damaged-events ");
  EXPECT_LT(outcome.peak_bytes, 200 * kMiB + kSanitizerBytes);
}

TEST_F(LimitsTest, GigabyteInTheHeaderIsAnError) {
  const Outcome outcome =
      ReadApart(Bomb(R"({"hostName": ")", 'x', 64, R"(", "traceEvents": []})"));
  EXPECT_NE(outcome.error, "");
  EXPECT_NE(outcome.error.find("bomb.json.gz"), std::string::npos);
  EXPECT_LT(outcome.peak_bytes, 400 * kMiB + kSanitizerBytes);
}

TEST_F(LimitsTest, StringOfHundredMegabytesCostsItsEvent) {
  const std::string path = folder_.Write(
      "long.json", R"({"traceEvents": [)" + event_ +
                       R"(, {"ph": "X", "cat": "cpu_op", "name": ")" +
                       std::string(100 * kMiB, 'n') +
                       R"(", "ts": 5, "dur": 1},)" + event_ + "]}");
  const Outcome outcome = ReadApart(path);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.ops, 2);
  EXPECT_EQ(outcome.losses, "damaged-events ");
  EXPECT_LT(outcome.peak_bytes, 200 * kMiB + kSanitizerBytes);
}

TEST_F(LimitsTest, DeepNestingCostsItsEventAndNoStack) {
  constexpr size_t kDepth = 100'000;
  const auto nested = [](char open, char close) {
    return std::string(kDepth, open) + std::string(kDepth, close);
  };
  const std::string path = folder_.Write(
      "deep.json",
      R"({"traceEvents": [)" + event_ +
          R"(, {"ph": "X", "cat": "cpu_op", "name": "deep", "ts": 5, )"
          R"("dur": 1, "args": {"Input Dims": )" +
          nested('[', ']') + "}}," + event_ + "]}");
  const Outcome outcome = ReadApart(path);
  EXPECT_EQ(outcome.error, "");
  EXPECT_GE(outcome.ops, 2);
  EXPECT_LT(outcome.peak_bytes, 200 * kMiB + kSanitizerBytes);

  std::string inputs = R"({"schema": )";
  for (size_t i = 0; i < kDepth; ++i) inputs += R"({"a":)";
  inputs +=
      "1" + std::string(kDepth, '}') + R"(, "traceEvents": [)" + event_ + "]}";
  const Outcome header = ReadApart(folder_.Write("header.json", inputs));
  EXPECT_EQ(header.error, "");
  EXPECT_EQ(header.ops, 1);
  EXPECT_EQ(header.losses, "damaged-header ");
  EXPECT_LT(header.peak_bytes, 200 * kMiB + kSanitizerBytes);
}

TEST_F(LimitsTest, OpInputsNestedDeeplyAreCutNotFollowed) {
  std::string dims;
  for (int i = 0; i < 600; ++i) dims += '[';
  const std::string text =
      KinetoFile(XEvent("cpu_op", "deep", "\"ts\": 1, \"dur\": 1",
                        "\"Input Dims\": " + dims + std::string(600, ']') +
                            ", \"Input type\": [\"float\"]"));
  const Outcome outcome = ReadApart(folder_.Write("inputs.json", text));
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.ops, 1);
}

TEST_F(LimitsTest, XSpaceThatClaimsAHugePlaneIsAnError) {
  // Field 1 with a length of almost 2^63, and a name.
  std::string bytes = "\x0a";
  for (int i = 0; i < 8; ++i) bytes += '\xff';
  bytes += std::string("\x7f\x08\x01\x12\x09/host:CPU", 14);
  const Outcome outcome = ReadApart(folder_.Write("huge.xplane.pb", bytes));
  EXPECT_NE(outcome.error.find("huge.xplane.pb"), std::string::npos)
      << outcome.error;
  EXPECT_LT(outcome.peak_bytes, 100 * kMiB + kSanitizerBytes);
}

}  // namespace
}  // namespace stepscope::limits_test
