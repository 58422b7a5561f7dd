#include "text/text_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_trace.h"
#include "support/trace_text.h"

namespace stepscope::text_writer_test {
namespace {

using ::testing::HasSubstr;

TEST(TextWriterTest, WritesOneLinePerRow) {
  const Trace trace = TraceFromText(R"(
    thread 0 pid=5 tid=6 torch_thread=1 main
    step 0..1000 thread=0 number=3
    op 100..200 thread=0 sequence=5 aten::add
  )");
  EXPECT_EQ(ToTraceText(trace), R"(run ""
watch step op
thread 0 pid=5 tid=6 torch_thread=1 main
step 0..1000 thread=0 number=3
op 100..200 thread=0 sequence=5 aten::add
)");
}

TEST(TextWriterTest, PrintsInputsAndStacksInBrief) {
  const std::string line =
      "op 1..2 thread=0 "
      "inputs=(float[2,3]{3,1},Scalar=\"1\",TensorList(float[2],\"long "
      "int\"[]),\"\") stack=(\"a.cc(1): f\",\"b\") aten::cat";
  const Trace trace = TraceFromText(line);
  ASSERT_EQ(trace.op_inputs().size(), 1u);
  EXPECT_EQ(trace.op_inputs()[0].arguments.size(), 4u);
  EXPECT_THAT(ToTraceText(trace),
              HasSubstr("(float[2,3]{3,1},Scalar=\"1\",TensorList(float[2],"
                        "\"long int\"),\"\")"));
}

TEST(TextWriterTest, QuotesNamesThatCouldBeTakenForSomethingElse) {
  TraceBuilder builder;
  for (const char* name : {"a=b", "", " x", "tab\there", "plain words"}) {
    Overhead row;
    row.name = builder.Intern(name);
    builder.Add(row);
  }
  EXPECT_THAT(ToTraceText(builder.Build()),
              HasSubstr("overhead 0..0 \"a=b\"\noverhead 0..0 \"\"\n"
                        "overhead 0..0 \" x\"\noverhead 0..0 \"tab\\there\"\n"
                        "overhead 0..0 plain words\n"));
}

TEST(TraceTextTest, NamesTheLineThatIsWrong) {
  const auto parsed = ParseTraceText("# fine\nop 1..2 colour=red aten::add\n");
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(std::string(parsed.status().message()),
              AllOf(HasSubstr("line 2"), HasSubstr("colour")));
}

TEST(TraceTextTest, ReadsBackWhatTheWriterPrints) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomTraceOptions options;
    options.seed = seed;
    const std::string text = ToTraceText(RandomTrace(options));
    const auto parsed = ParseTraceText(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    // The parser marks kinds of rows that appear as watched, so that line may
    // differ. All other lines must be equal.
    const std::string again = ToTraceText(*parsed);
    const auto without_watch = [](const std::string& all) {
      const size_t begin = all.find("\nwatch");
      return all.substr(0, begin) + all.substr(all.find('\n', begin + 1));
    };
    EXPECT_EQ(without_watch(text), without_watch(again)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stepscope::text_writer_test
