// Tests files of profilers for other devices than NVIDIA's, and of PyTorch
// built without Kineto.
#include <string>

#include "exporters/chrome/chrome_text.h"

namespace stepscope::vendors_test {
namespace {

using VendorsTest = ChromeTextTest;

std::string Call(const char* category, const char* name, const char* args) {
  return XEvent(category, name, "\"ts\": 1, \"dur\": 2", args);
}
std::string Work(const char* category, const char* name, const char* args) {
  return XEvent(category, name, "\"ts\": 5, \"dur\": 3", args);
}

TEST_F(VendorsTest, ReadsTheListWrittenWithoutKineto) {
  const Trace trace = Read(
      R"([{"name": "ProfilerStep#3", "ph": "X", "ts": 1, "dur": 90, "tid": 7,
          "pid": "CPU functions", "args": {}},
          {"name": "aten::mm", "ph": "X", "ts": 10, "dur": 50, "tid": 7,
          "pid": "CPU functions", "args": {}},
          {"name": "aten::relu", "ph": "X", "ts": 20, "dur": 30, "tid": 7,
          "pid": "CPU functions", "args": {}},
          {"name": "sgemm", "ph": "X", "ts": 30, "dur": 9, "tid": 0,
          "pid": "CUDA functions", "args": {}}])");
  ASSERT_EQ(trace.ops().size(), 2u);
  EXPECT_EQ(trace.ops()[1].parent, 0u);
  ASSERT_EQ(trace.steps().size(), 1u);
  EXPECT_EQ(trace.steps()[0].number, 3);
  ASSERT_EQ(trace.kernels().size(), 1u);
  EXPECT_EQ(trace.name(trace.kernels()[0].name), "sgemm");
}

TEST_F(VendorsTest, LinksWorkToTheCallsOfEachDevice) {
  for (const char* category :
       {"xpu_runtime", "xpu_driver", "privateuse1_runtime", "mtia_runtime"}) {
    const Trace trace = Read(KinetoFile(
        Call(category, "Launch", "\"correlation\": 4") + "," +
        Work("kernel", "gemm", "\"device\": 0, \"correlation\": 4")));
    ASSERT_EQ(trace.kernels().size(), 1u) << category;
    EXPECT_EQ(trace.kernels()[0].call, 0u) << category;
    EXPECT_EQ(LossCount(trace, "unknown-events"), 0) << category;
  }
}

// Written by ROCm before PyTorch 2.4.
TEST_F(VendorsTest, LinksWorkWithoutACorrelationByTheArrowBehindIt) {
  const auto with = [&](const char* arrow_begin) {
    return Read(KinetoFile(
        Call("cuda_runtime", "hipLaunchKernel", "\"correlation\": 9") + "," +
        Work("kernel", "gemm", "\"External id\": 3") +
        R"(, {"ph": "f", "id": 9, "pid": 10, "tid": 11, "ts": )" + arrow_begin +
        R"(, "cat": "ac2g", "name": "ac2g", "bp": "e"})"));
  };
  EXPECT_EQ(with("5").kernels()[0].call, 0u);
  EXPECT_EQ(with("6").kernels()[0].call, kNone);  // an arrow of other work
}

TEST_F(VendorsTest, ReportsTheRowsOfAscendThatAreNotRead) {
  const Trace trace = Read(KinetoFile(
      Call("cpu_op", "aten::mul", "") +
      R"(, {"ph": "X", "name": "Mul", "pid": "3_0", "tid": 5, "ts": "7.5",
        "dur": 2, "args": {"Task Type": "AI_CORE", "Stream Id": 5}})"));
  EXPECT_EQ(LossCount(trace, "unread-device-rows"), 1);
}

// Kineto's category for work on the device itself is not read here.
TEST_F(VendorsTest, NamesADeviceWhoseWorkIsNotRead) {
  const Trace trace = Read(KinetoFile(
      Call("cpu_op", "aten::mul", "") + "," +
      Call("mtia_runtime", "runFunction", "\"correlation\": 4") + "," +
      Work("mtia_ccp_events", "kernel-0", "\"correlation\": 4")));
  EXPECT_EQ(LossCount(trace, "unread-device-rows"), 1);
  ASSERT_EQ(trace.run().devices.size(), 1u);
  EXPECT_EQ(trace.run().devices[0].name, "MTIA");
  EXPECT_EQ(trace.run().devices[0].vendor, "Meta");
}

TEST_F(VendorsTest, SaysThatRanksWereMerged) {
  const auto of = [](const char* pid) {
    return R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": ")" +
           std::string(pid) + R"(", "tid": 11, "ts": 1, "dur": 2, "args": {}})";
  };
  EXPECT_EQ(LossCount(Read(KinetoFile(of("[TP00] 5") + "," + of("[TP01] 5"))),
                      "merged-ranks"),
            1);
  EXPECT_EQ(LossCount(Read(KinetoFile(of("[TP00] 5") + "," + of("[TP00] 6"))),
                      "merged-ranks"),
            0);
}

TEST_F(VendorsTest, AWaitForTheContextIsForNoStream) {
  const Trace trace = Read(KinetoFile(
      Work("cuda_sync", "Context Sync",
           "\"stream\": 4294967295, \"correlation\": 4, \"device\": 0")));
  ASSERT_EQ(trace.syncs().size(), 1u);
  EXPECT_EQ(trace.syncs()[0].stream, -1);
}

}  // namespace
}  // namespace stepscope::vendors_test
