#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "ops/op_traits.h"
#include "support/trace_text.h"

namespace stepscope::op_tree_test {
namespace {

std::vector<RowId> Rows(std::span<const RowId> rows) {
  return {rows.begin(), rows.end()};
}

// matmul around mm, which starts at the same time; a sibling; and ops of other
// threads.
constexpr const char* kText = R"(
op 10..50 thread=0 aten::matmul
op 10..40 thread=0 aten::mm
op 20..30 thread=1 aten::add
op 50..60 thread=0 aten::relu
op 52..54 aten::mul
)";

TEST(OpTreeTest, AWindowHasItsThreadsOpsThatStartInIt) {
  const Trace trace = TraceFromText(kText);
  const OpTree tree(trace);
  EXPECT_EQ(Rows(tree.of_thread(0, {10, 50})), (std::vector<RowId>{0, 1}));
  EXPECT_EQ(Rows(tree.of_thread(0, {11, 51})), (std::vector<RowId>{3}));
  EXPECT_TRUE(tree.of_thread(0, {51, 100}).empty());
  EXPECT_TRUE(tree.of_thread(0, {50, 10}).empty());
}

TEST(OpTreeTest, InsideAnOpAreNoOpsAroundItAndNoneOfOtherThreads) {
  const Trace trace = TraceFromText(kText);
  const OpTree tree(trace);
  EXPECT_EQ(Rows(tree.inside(0)), (std::vector<RowId>{0, 1}));
  EXPECT_EQ(Rows(tree.inside(1)), (std::vector<RowId>{1}));
  EXPECT_EQ(Rows(tree.inside(3)), (std::vector<RowId>{3}));
  EXPECT_TRUE(tree.inside(4).empty());  // its thread is unknown
}

TEST(OpTreeTest, ANameHasItsOpsOfAllThreads) {
  const Trace trace = TraceFromText(R"(
op 10..50 thread=0 aten::mm
op 20..30 thread=1 aten::add
op 40..60 thread=1 aten::mm
kernel 50..60 stream=7 gemm
)");
  const OpTree tree(trace);
  EXPECT_EQ(Rows(tree.named("aten::mm")), (std::vector<RowId>{0, 2}));
  EXPECT_EQ(Rows(tree.named("aten::add")), (std::vector<RowId>{1}));
  EXPECT_TRUE(tree.named("gemm").empty());  // no op
  EXPECT_TRUE(tree.named("aten::relu").empty());
}

TEST(OpTreeTest, OnlyThreadsThatRunNodesAreBackwardThreads) {
  const Trace trace = TraceFromText(R"(
op 10..20 thread=0 aten::mm
op 20..30 thread=1 kind=backward MmBackward0
op 30..40 kind=backward MmBackward0
)");
  EXPECT_EQ(Rows(OpTree(trace).backward_threads()), (std::vector<RowId>{1}));
}

}  // namespace
}  // namespace stepscope::op_tree_test
