// Tests `stepscope top`: calls, total time and self time by name.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/top.h>

#include <string>

#include "support/random_trace.h"
#include "support/trace_text.h"

namespace stepscope::top_test {
namespace {

const TopTable* TableOf(const std::vector<TopTable>& tables,
                        std::string_view name) {
  for (const TopTable& table : tables) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

const TopRow* RowOf(const std::vector<TopTable>& tables, std::string_view table,
                    std::string_view name, std::string_view shape = "") {
  const TopTable* of = TableOf(tables, table);
  if (of == nullptr) return nullptr;
  for (const TopRow& row : of->rows) {
    if (row.name == name && row.shape == shape) return &row;
  }
  return nullptr;
}

const char* const kTrace = R"(
  op 0..100 thread=0 inputs=(float[8,8],"",Scalar) outer
  op 10..40 thread=0 inputs=(float[4]) inner
  op 20..30 thread=0 inputs=(float[4]) inner
  op 50..60 thread=0 inputs=(float[2]) inner
  runtime_call 22..25 thread=0 correlation=1 cudaLaunchKernel
  runtime_call 70..80 thread=0 correlation=2 cudaLaunchKernel
  kernel 200..260 device=0 stream=7 correlation=1 grid=1,1,1 block=32,1,1 gemm
  kernel 300..310 device=0 stream=7 correlation=2 grid=2,1,1 block=32,1,1 gemm
  copy 400..440 device=0 stream=7 bytes=80 source=pinned destination=device
  memset 500..505 device=0 stream=7 bytes=8
  range 0..90 thread=0 around
  range 30..50 thread=0 within
  range 85..95 thread=0 crossing
)";

TEST(TopTest, SelfTimeLeavesOutTheOperatorsInside) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {});
  const TopRow* outer = RowOf(tables, "ops", "outer");
  ASSERT_NE(outer, nullptr);
  EXPECT_EQ(outer->total_ns, 100);
  EXPECT_EQ(outer->self_ns, 60);
  EXPECT_EQ(outer->calls, 1);
}

TEST(TopTest, OperatorInsideItsOwnNameAddsNoTotal) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {});
  const TopRow* inner = RowOf(tables, "ops", "inner");
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->calls, 3);
  EXPECT_EQ(inner->total_ns, 40);
  EXPECT_EQ(inner->self_ns, 40);
  EXPECT_EQ(inner->min_ns, 10);
  EXPECT_EQ(inner->max_ns, 30);
  EXPECT_NEAR(inner->share_frac, 0.4, 1e-9);
}

TEST(TopTest, DeviceTimeBelongsToTheLaunchingOperatorAndThoseAroundIt) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {});
  const TopRow* outer = RowOf(tables, "ops", "outer");
  const TopRow* inner = RowOf(tables, "ops", "inner");
  ASSERT_NE(outer, nullptr);
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(outer->device_self_ns, 10);
  EXPECT_EQ(outer->device_total_ns, 70);
  EXPECT_EQ(inner->device_self_ns, 60);
  EXPECT_EQ(inner->device_total_ns, 60);
  const TopRow* launch = RowOf(tables, "calls", "cudaLaunchKernel");
  ASSERT_NE(launch, nullptr);
  EXPECT_EQ(launch->device_self_ns, 70);
}

// A graph replay runs no operators, so the operators of the capture get its
// kernels' time.
TEST(TopTest, GraphKernelsBelongToTheOpsOfTheirCapture) {
  const auto tables = MakeTopTables(TraceFromText(R"(
    op 0..100 thread=0 replay
    runtime_call 10..20 thread=0 correlation=1 cudaGraphLaunch
    kernel 200..260 stream=7 correlation=1 graph=3 graph_node=1 captured_ops=("aten::addmm","aten::linear","aten::linear") gemm
    kernel 260..270 device=0 stream=7 correlation=1 graph=3 graph_node=2 add
  )"),
                                    {});
  const TopRow* addmm = RowOf(tables, "ops", "aten::addmm");
  ASSERT_NE(addmm, nullptr);
  EXPECT_EQ(addmm->device_self_ns, 60);
  EXPECT_EQ(addmm->device_total_ns, 60);
  EXPECT_EQ(addmm->calls, 0);
  const TopRow* linear = RowOf(tables, "ops", "aten::linear");
  ASSERT_NE(linear, nullptr);
  EXPECT_EQ(linear->device_self_ns, 0);
  EXPECT_EQ(linear->device_total_ns, 60);
  EXPECT_EQ(RowOf(tables, "ops", "replay")->device_self_ns, 10);
  EXPECT_EQ(RowOf(tables, "calls", "cudaGraphLaunch")->device_self_ns, 70);
}

// The launched name stays in the table, because a timeline shows it.
TEST(TopTest, CompiledKernelsHaveTheirOperators) {
  const auto tables = MakeTopTables(TraceFromText(R"(
    op 0..100 thread=0 code=("/tmp/ab/cab.py","XBLOCK=2") triton_poi_fused_add_relu_0
    op 200..300 thread=0 region
    runtime_call 10..20 thread=0 correlation=1 hipModuleLaunchKernel
    runtime_call 210..220 thread=0 correlation=2 hipModuleLaunchKernel
    kernel 400..460 stream=7 correlation=1 triton_poi_fused_add_relu_0
    kernel 500..510 stream=7 correlation=2 triton_per_fused__softmax_1
  )"),
                                    {});
  for (const char* table : {"ops", "kernels"}) {
    const TopRow* row = RowOf(tables, table, "triton_poi_fused_add_relu_0");
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->code_file, "/tmp/ab/cab.py") << table;
    EXPECT_EQ(row->code_parameters, "XBLOCK=2") << table;
  }
  EXPECT_EQ(RowOf(tables, "kernels", "triton_per_fused__softmax_1")->code_file,
            "");
  const std::string text = ToText(tables, 150);
  EXPECT_NE(text.find("  add + relu (compiled), triton_poi_fused_add_relu_0\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("_softmax (compiled), triton_per_fused__softmax_1"),
            std::string::npos);
  EXPECT_NE(ToCsv(tables).find(",add + relu (compiled),/tmp/ab/cab.py\n"),
            std::string::npos);
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(ToJson(tables)).get(json), simdjson::SUCCESS);
  const simdjson::dom::element row = json["kernels"]["rows"].at(0);
  EXPECT_EQ(std::string_view(row["name"]), "triton_poi_fused_add_relu_0");
  EXPECT_EQ(std::string_view(row["fused_ops"].at(1)), "relu");
  EXPECT_EQ(std::string_view(row["code_file"]), "/tmp/ab/cab.py");
}

TEST(TopTest, OpsThatWereNotCompiledHaveNoOperatorsInside) {
  const std::string json =
      ToJson(MakeTopTables(TraceFromText(kTrace), {.limit = 0}));
  EXPECT_EQ(json.find("fused_ops"), std::string::npos);
}

TEST(TopTest, ByShapeTellsRowsApart) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {.by_shape = true});
  const TopRow* four = RowOf(tables, "ops", "inner", "float[4]");
  const TopRow* two = RowOf(tables, "ops", "inner", "float[2]");
  ASSERT_NE(four, nullptr);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(four->calls, 2);
  EXPECT_EQ(two->calls, 1);
  EXPECT_NE(RowOf(tables, "ops", "outer", "float[8,8] - Scalar"), nullptr);
  EXPECT_NE(RowOf(tables, "kernels", "gemm", "grid 2,1,1 block 32,1,1"),
            nullptr);
  EXPECT_NE(RowOf(tables, "copies", "copy pinned -> device", "80 B"), nullptr);
}

TEST(TopTest, CopiesHaveBytesAndMemsetsTheirOwnRow) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {});
  const TopRow* copy = RowOf(tables, "copies", "copy pinned -> device");
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->bytes, 80);
  EXPECT_EQ(copy->total_ns, 40);
  ASSERT_NE(RowOf(tables, "copies", "memset"), nullptr);
}

TEST(TopTest, RangesLoseWhatRunsInsideAndShareWhatCrosses) {
  const auto tables = MakeTopTables(TraceFromText(kTrace), {});
  EXPECT_EQ(RowOf(tables, "ranges", "around")->self_ns, 65);
  EXPECT_EQ(RowOf(tables, "ranges", "within")->self_ns, 20);
  EXPECT_EQ(RowOf(tables, "ranges", "crossing")->self_ns, 10);
}

TEST(TopTest, SelfTimesAddUpToTheTimeOfTheOutermostOperators) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = RandomTrace({.seed = seed});
    int64_t outermost_ns = 0;
    int64_t launched_ns = 0;
    for (const Op& op : trace.ops()) {
      if (op.parent == kNone) outermost_ns += op.end_ns - op.begin_ns;
    }
    const auto add = [&](const DeviceWork& work, bool is_of_op) {
      if (is_of_op) launched_ns += work.end_ns - work.begin_ns;
    };
    for (const Kernel& kernel : trace.kernels()) {
      const bool was_captured =
          kernel.captured_ops != kNone &&
          !trace.stacks()[kernel.captured_ops].frames.empty();
      add(kernel, was_captured || kernel.op != kNone);
    }
    for (const Copy& copy : trace.copies()) add(copy, copy.op != kNone);
    for (const Memset& set : trace.memsets()) add(set, set.op != kNone);
    const auto tables =
        MakeTopTables(trace, {.by_shape = seed % 2 == 0, .limit = 0});
    int64_t self_ns = 0;
    int64_t device_ns = 0;
    int64_t calls = 0;
    for (const TopRow& row : TableOf(tables, "ops")->rows) {
      self_ns += row.self_ns;
      device_ns += row.device_self_ns;
      calls += row.calls;
      EXPECT_GE(row.total_ns, row.self_ns) << row.name;
      EXPECT_GE(row.device_total_ns, row.device_self_ns) << row.name;
    }
    EXPECT_EQ(self_ns, outermost_ns) << "seed " << seed;
    EXPECT_EQ(device_ns, launched_ns) << "seed " << seed;
    EXPECT_EQ(calls, static_cast<int64_t>(trace.ops().size()));
  }
}

TEST(TopTest, OrderAndLimitPickTheRows) {
  const Trace trace = TraceFromText(kTrace);
  const auto calls =
      MakeTopTables(trace, {.order = TopOrder::kCalls, .limit = 1});
  const TopTable* ops = TableOf(calls, "ops");
  ASSERT_EQ(ops->rows.size(), 1u);
  EXPECT_EQ(ops->rows[0].name, "inner");
  EXPECT_EQ(ops->row_count, 2u);
  EXPECT_EQ(ops->self_ns, 100);
  const auto device = MakeTopTables(trace, {.order = TopOrder::kDevice});
  EXPECT_EQ(TableOf(device, "ops")->rows[0].name, "inner");
}

TEST(TopTest, TablesWithoutRowsAreLeftOut) {
  const auto tables = MakeTopTables(TraceFromText("op 0..9 thread=0 x"), {});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_FALSE(tables[0].has_device);
}

TEST(TopTest, CsvQuotesWhatWouldBreakALine) {
  // In all tables, a line break in a name becomes a space.
  const auto tables = MakeTopTables(
      TraceFromText("op 0..9 thread=0 \"a, \\\"b\\\"\\nc\"\n"), {});
  EXPECT_NE(ToCsv(tables).find("ops,\"a, \"\"b\"\" c\",,1,0.009,0.009"),
            std::string::npos)
      << ToCsv(tables);
}

TEST(TopTest, JsonIsValidWhateverTheNames) {
  const auto tables = MakeTopTables(
      RandomTrace({.seed = 3, .hostile_names = true, .bad_utf8 = true}),
      {.limit = 0});
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  ASSERT_FALSE(parser.parse(ToJson(tables)).get(object));
  EXPECT_EQ(int64_t(object["version"]), 1);
  EXPECT_EQ(uint64_t(object["ops"]["rows_in_all"]),
            simdjson::dom::array(object["ops"]["rows"]).size());
}

TEST(TopTest, TextKeepsLongNamesApartAndSaysWhatIsLeftOut) {
  const std::string long_name(300, 'k');
  const auto tables = MakeTopTables(
      TraceFromText("op 0..9 thread=0 " + long_name + "\nop 10..11 thread=0 b"),
      {.limit = 1});
  const std::string text = ToText(tables, 100);
  EXPECT_EQ(text.find(long_name), std::string::npos);
  EXPECT_NE(text.find("kkk...kkk"), std::string::npos) << text;
  EXPECT_NE(text.find("1 more; --limit 0"), std::string::npos) << text;
}

}  // namespace
}  // namespace stepscope::top_test
