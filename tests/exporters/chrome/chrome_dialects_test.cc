// Tests Kineto's dialects of 2021 to 2026 field by field.
#include <stepscope/trace_builder.h>

#include <utility>
#include <vector>

#include "exporters/chrome/chrome_text.h"

namespace stepscope::chrome_dialects_test {
namespace {

using ChromeDialectsTest = ChromeTextTest;

TEST_F(ChromeDialectsTest, ReadsOperatorsOf2021) {
  const Trace trace = Read(KinetoFile(R"json(
  {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 5, "tid": "5",
   "ts": 1623142623460180, "dur": 11, "args": {"Device": 5, "External id": 5,
   "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"],
   "Call stack": "b.py(2): g;a.py(1): f", "Fwd thread id": 0,
   "Sequence number": 7}},
  {"ph": "X", "cat": "Operator", "name": "AddmmBackward", "pid": 5,
   "tid": "9 (worker)", "ts": 1623142623460300, "dur": 5,
   "args": {
  "Fwd thread id" : 1, "Sequence number" : 7}},
  {"ph": "X", "cat": "Operator", "name": "ProfilerStep#5", "pid": 5, "tid": "5",
   "ts": 1623142623460000, "dur": 1000, "args": {}},
  {"ph": "X", "cat": "Operator", "name":
   "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "pid": 5,
   "tid": "5", "ts": 1623142623460010, "dur": 100, "args": {}},
  {"ph": "i", "name": "[memory]", "pid": 5, "tid": 5, "s": "t",
   "ts": 1623142623460182, "args": {"Device Type": 1, "Device Id": 0,
   "Bytes": 512}})json"));
  ASSERT_EQ(trace.ops().size(), 2u);
  const Op& op = trace.ops()[0];
  EXPECT_EQ(trace.name(op.name), "aten::mm");
  EXPECT_EQ(op.begin_ns, 1623142623460180000);
  EXPECT_EQ(op.end_ns - op.begin_ns, 11000);
  EXPECT_EQ(op.kind, OpKind::kOperator);
  EXPECT_EQ(op.sequence, 7);
  const OpInputs& inputs = trace.op_inputs()[op.inputs];
  ASSERT_EQ(inputs.arguments.size(), 2u);
  EXPECT_EQ(inputs.arguments[1].dims, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(trace.name(inputs.arguments[1].type), "float");
  const Stack& stack = trace.stacks()[op.stack];
  ASSERT_EQ(stack.frames.size(), 2u);
  EXPECT_EQ(trace.name(stack.frames[0]), "b.py(2): g");
  EXPECT_EQ(trace.ops()[1].kind, OpKind::kBackward);
  EXPECT_EQ(trace.ops()[1].forward, 0u);
  EXPECT_EQ(trace.threads()[trace.ops()[1].thread].tid, 9);
  ASSERT_EQ(trace.steps().size(), 1u);
  EXPECT_EQ(trace.steps()[0].number, 5);
  ASSERT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kLoader);
  ASSERT_EQ(trace.allocations().size(), 1u);
  EXPECT_EQ(trace.allocations()[0].bytes, 512);
  EXPECT_EQ(trace.allocations()[0].total_allocated_bytes, -1);
  EXPECT_EQ(trace.allocations()[0].op, 0u);
}

// Inductor passes this to the profiler when it launches a generated kernel.
TEST_F(ChromeDialectsTest, ReadsTheCodeOfCompiledKernels) {
  const Trace trace = Read(KinetoFile(R"json(
  {"ph": "X", "cat": "cpu_op", "name": "triton_poi_fused_add_relu_0", "pid": 5,
   "tid": 5, "ts": 100, "dur": 40, "args": {"External id": 6,
   "num_warps": 8, "stream": 0, "kernel_backend": "triton",
   "kernel_name": "triton_poi_fused_add_relu_0", "num_stages": 1,
   "kernel_kwargs": "XBLOCK=2,R0_BLOCK=2048",
   "kernel_file": "/tmp/torchinductor_me/ab/cab.py", "kernel_hash": "cab"}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 5, "tid": 5,
   "ts": 200, "dur": 40, "args": {"kernel_file": 7}}
  )json"));
  ASSERT_EQ(trace.ops().size(), 2u);
  ASSERT_NE(trace.ops()[0].code, kNone);
  const Stack& code = trace.stacks()[trace.ops()[0].code];
  ASSERT_EQ(code.frames.size(), 2u);
  EXPECT_EQ(trace.name(code.frames[0]), "/tmp/torchinductor_me/ab/cab.py");
  EXPECT_EQ(trace.name(code.frames[1]), "XBLOCK=2,R0_BLOCK=2048");
  EXPECT_EQ(trace.ops()[1].code, kNone);
  EXPECT_EQ(trace.ops()[0].stack, kNone);
}

// torch.cuda.mark_kernels() and its tool put the place into the args. Files of
// torch's exporter also have the kernel's own name there.
TEST_F(ChromeDialectsTest, ReadsMarksOfGraphKernels) {
  const Trace trace = Read(KinetoFile(R"json(
  {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 110,
   "dur": 50, "args": {"device": 0, "stream": 7, "correlation": 77,
   "graph id": 3, "graph node id": 12884901889, "name": "layers.0.wq"}},
  {"ph": "X", "cat": "kernel", "name": "relu", "pid": 0, "tid": 7, "ts": 210,
   "dur": 50, "args": {"device": 0, "stream": 7, "correlation": 77,
   "graph id": 3, "graph node id": 12884901890, "name": "relu"}},
  {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 310,
   "dur": 50, "args": {"device": 0, "stream": 7, "correlation": 78,
   "name": "not of a graph"}})json"));
  ASSERT_EQ(trace.kernels().size(), 3u);
  const auto module_of = [&](size_t kernel) {
    return trace.name(trace.kernels()[kernel].captured_module);
  };
  EXPECT_EQ(module_of(0), "layers.0.wq");
  EXPECT_EQ(module_of(1), "");
  EXPECT_EQ(module_of(2), "");
}

TEST_F(ChromeDialectsTest, ReadsTheGpuOf2021) {
  const Trace trace = Read(KinetoFile(R"json(
  {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5,
   "tid": "5", "ts": 100, "dur": 5, "args": {"cbid": 211, "correlation": 77,
   "external id": 5, "external ts": 9}},
  {"ph": "X", "cat": "Kernel", "name": "volta_sgemm", "pid": 2, "tid":
   "stream 7", "ts": 110, "dur": 50, "args": {"queued": 0, "device": 0,
   "context": 1, "stream": 7, "correlation": 77, "registers per thread": 38,
   "shared memory": 16, "blocks per SM": 0.625, "warps per SM": 5.0,
   "grid": [50, 2, 1], "block": [256, 1, 1], "theoretical occupancy %": 80,
   "est. achieved occupancy %": 8}},
  {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)",
   "pid": 0, "tid": "stream 7", "ts": 170, "dur": 5, "args": {
  "device" : 0, "stream" : 7, "correlation" : 78, "bytes" : 4096}},
  {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0,
   "tid": "stream 7", "ts": 180, "dur": 5, "args": {
  "device" : 0, "stream" : 7, "correlation" : 79, "bytes" : 128}})json"));
  ASSERT_EQ(trace.kernels().size(), 1u);
  const Kernel& kernel = trace.kernels()[0];
  EXPECT_EQ(kernel.device, 0);  // from the args, not from its row
  EXPECT_EQ(kernel.stream, 7);
  EXPECT_EQ(kernel.grid, (std::array<int32_t, 3>{50, 2, 1}));
  EXPECT_EQ(kernel.block, (std::array<int32_t, 3>{256, 1, 1}));
  EXPECT_EQ(kernel.registers_per_thread, 38);
  EXPECT_EQ(kernel.shared_memory_bytes, 16);
  EXPECT_FLOAT_EQ(kernel.blocks_per_sm, 0.625f);
  EXPECT_FLOAT_EQ(kernel.occupancy_frac, 0.08f);
  EXPECT_EQ(kernel.call, 0u);
  ASSERT_EQ(trace.copies().size(), 1u);
  EXPECT_EQ(trace.copies()[0].source, MemoryKind::kPageable);
  EXPECT_EQ(trace.copies()[0].destination, MemoryKind::kDevice);
  EXPECT_EQ(trace.copies()[0].bytes, 4096);
  ASSERT_EQ(trace.memsets().size(), 1u);
  EXPECT_EQ(trace.memsets()[0].bytes, 128);
  EXPECT_FALSE(trace.runtime_calls()[0].is_driver);
}

TEST_F(ChromeDialectsTest, ReadsDriverCallsSyncsAndOverheads) {
  const Trace trace = Read(KinetoFile(
      XEvent("cuda_driver", "cuLaunchKernelEx", "\"ts\": 1, \"dur\": 2",
             "\"correlation\": 4") +
      "," +
      XEvent("cuda_sync", "Stream Wait Event", "\"ts\": 2, \"dur\": 1",
             R"json("cuda_sync_kind": "Stream Wait Event", "stream": 7,
                "correlation": 4, "device": 1, "wait_on_stream": 20,
                "wait_on_cuda_event_record_corr_id": 33)json") +
      R"json(, {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1,
            "tid": 11, "ts": 5, "dur": 1})json"));
  ASSERT_EQ(trace.runtime_calls().size(), 1u);
  EXPECT_TRUE(trace.runtime_calls()[0].is_driver);
  ASSERT_EQ(trace.syncs().size(), 1u);
  EXPECT_EQ(trace.syncs()[0].wait_on_stream, 20);
  EXPECT_EQ(trace.syncs()[0].wait_on_record_correlation, 33);
  EXPECT_EQ(trace.syncs()[0].device, 1);
  EXPECT_EQ(trace.syncs()[0].call, 0u);
  ASSERT_EQ(trace.overheads().size(), 1u);
  // Drawn in process -1, but it belongs to the calling thread.
  EXPECT_EQ(trace.overheads()[0].thread, trace.runtime_calls()[0].thread);
}

TEST_F(ChromeDialectsTest, ReadsMemoryKindsFromCopyNames) {
  const std::vector<std::pair<const char*, std::pair<MemoryKind, MemoryKind>>>
      names = {{"Memcpy DtoH (Device -> Pinned)",
                {MemoryKind::kDevice, MemoryKind::kPinned}},
               {"Memcpy HtoD (Host -> Device)",
                {MemoryKind::kHost, MemoryKind::kDevice}},
               {"Memcpy DtoD (Device -> Device)",
                {MemoryKind::kDevice, MemoryKind::kDevice}},
               {"Memcpy HtoD (Unknown -> Array)",
                {MemoryKind::kHost, MemoryKind::kArray}},
               {"Memcpy M2D (MEMORY(Unknown) -> DEVICE)",
                {MemoryKind::kHost, MemoryKind::kDevice}},
               {"Memcpy HtoD (Managed Static -> Device Static)",
                {MemoryKind::kManaged, MemoryKind::kDevice}},
               {"CopyHostToDevice", {MemoryKind::kHost, MemoryKind::kDevice}},
               {"Memcpy PtoP", {MemoryKind::kDevice, MemoryKind::kDevice}},
               {"copy", {MemoryKind::kUnknown, MemoryKind::kUnknown}}};
  std::string events;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) events += ",";
    events += XEvent("gpu_memcpy", names[i].first,
                     "\"ts\": " + std::to_string(i) + ", \"dur\": 1");
  }
  const Trace trace = Read(KinetoFile(events));
  ASSERT_EQ(trace.copies().size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(trace.copies()[i].source, names[i].second.first)
        << names[i].first;
    EXPECT_EQ(trace.copies()[i].destination, names[i].second.second);
    EXPECT_EQ(trace.copies()[i].bytes, -1);
  }
}

TEST_F(ChromeDialectsTest, CountsAStepOnceThoughTheGpuRepeatsIt) {
  const Trace trace = Read(KinetoFile(
      XEvent("user_annotation", "ProfilerStep#3", "\"ts\": 1, \"dur\": 9") +
      "," +
      XEvent("gpu_user_annotation", "ProfilerStep#3", "\"ts\": 4, \"dur\": 9") +
      "," +
      XEvent("user_annotation", "ProfilerStep#3", "\"ts\": 1, \"dur\": 9")));
  ASSERT_EQ(trace.steps().size(), 1u);
  EXPECT_EQ(trace.steps()[0].begin_ns, 1000);
  EXPECT_EQ(LossCount(trace, "duplicate-steps"), 1);
}

TEST_F(ChromeDialectsTest, KeepsStepsWhoseNumberCannotBeRead) {
  const auto mark = [](const char* name, int ts) {
    return XEvent("user_annotation", name,
                  "\"ts\": " + std::to_string(ts) + ", \"dur\": 9");
  };
  const Trace trace = Read(KinetoFile(
      mark("ProfilerStep#99999999999999999999999", 21) + "," +
      mark("ProfilerStep#-5", 11) + "," + mark("ProfilerStep#-5", 11) + "," +
      mark("ProfilerStep#7", 1)));
  ASSERT_EQ(trace.steps().size(), 3u);
  EXPECT_EQ(trace.steps()[0].number, 7);
  EXPECT_EQ(trace.steps()[1].number, 8);
  EXPECT_EQ(trace.steps()[1].begin_ns, 11'000);
  EXPECT_EQ(trace.steps()[2].number, 9);
  EXPECT_EQ(LossCount(trace, "unreadable-step-numbers"), 2);
  EXPECT_EQ(LossCount(trace, "duplicate-steps"), 1);
}

TEST_F(ChromeDialectsTest, ReadsCollectives) {
  const Trace trace = Read(KinetoFile(XEvent(
      "cpu_op", "record_param_comms", "\"ts\": 1, \"dur\": 9",
      R"json("Collective name": "allreduce", "dtype": "Float", "Group size": 2,
         "In msg nelems": 100, "Out msg nelems": 100, "Process Group Name": "0",
         "Process Group Description": "default_pg",
         "Process Group Ranks": "[0, 1]", "Seq": 12)json")));
  ASSERT_EQ(trace.communications().size(), 1u);
  const Communication& row = trace.communications()[0];
  EXPECT_EQ(trace.name(row.name), "allreduce");
  EXPECT_EQ(trace.name(row.group_description), "default_pg");
  EXPECT_EQ(row.group_size, 2);
  EXPECT_EQ(row.in_elements, 100);
  EXPECT_EQ(row.sequence, 12);
  EXPECT_EQ(row.op, 0u);
  EXPECT_EQ(trace.ops().size(), 1u);
  EXPECT_TRUE(trace.watched(Kind::kCommunication));
}

TEST_F(ChromeDialectsTest, ReadsListsOfTensors) {
  const Trace trace = Read(KinetoFile(
      XEvent("cpu_op", "aten::cat", "\"ts\": 1, \"dur\": 9",
             R"json("Input Dims": [[[2, 3], [4, 3]], []], "Input Strides":
         [[[3, 1], [3, 1]], []], "Input type": ["TensorList", "Scalar"],
         "Concrete Inputs": ["", "0"])json")));
  const OpInputs& inputs = trace.op_inputs()[trace.ops()[0].inputs];
  ASSERT_EQ(inputs.arguments.size(), 2u);
  ASSERT_EQ(inputs.arguments[0].elements.size(), 2u);
  EXPECT_EQ(inputs.arguments[0].elements[1].dims, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(inputs.arguments[0].elements[1].strides,
            (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(trace.name(inputs.arguments[1].concrete), "0");
}

TEST_F(ChromeDialectsTest, ReadsTheHeader) {
  const Trace trace = Read(
      KinetoFile(XEvent("cpu_op", "aten::add", "\"ts\": 1, \"dur\": 9"),
                 R"json("deviceProperties": [{"id": 0, "name": "NVIDIA H200",
           "totalGlobalMem": 150000000000, "computeMajor": 9,
           "computeMinor": 0, "numSms": 132, "warpSize": 32,
           "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
           "sharedMemPerMultiprocessor": 233472}],
         "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
         "record_shapes": 1, "profile_memory": 1, "with_stack": 1,
         "cuda_runtime_version": 13000, "host_name": "node7",
         "baseTimeNanoseconds": 1700000000000000000,)json"));
  const RunInfo& run = trace.run();
  EXPECT_EQ(run.rank, 3);
  EXPECT_EQ(run.world_size, 8);
  EXPECT_EQ(run.backend, "nccl");
  EXPECT_EQ(run.host, "node7");
  EXPECT_EQ(run.cuda_version, "13.0");
  EXPECT_EQ(run.pid, 10);
  EXPECT_EQ(run.producer, "torch.profiler");
  ASSERT_EQ(run.devices.size(), 1u);
  EXPECT_EQ(run.devices[0].vendor, "Nvidia");
  EXPECT_EQ(run.devices[0].sm_count, 132);
  EXPECT_EQ(run.devices[0].shared_memory_per_sm_bytes, 233472);
  EXPECT_EQ(trace.ops()[0].begin_ns, 1700000000000001000);
  // A kind promised by the flags was watched, even if no row came.
  EXPECT_TRUE(trace.watched(Kind::kOpShapes));
  EXPECT_TRUE(trace.watched(Kind::kMemory));
  EXPECT_TRUE(trace.watched(Kind::kPythonFrame));
}

TEST_F(ChromeDialectsTest, TakesHeaderKeysFromBehindTheEvents) {
  const Trace trace =
      Read(R"json({"traceEvents": [)json" +
           XEvent("cpu_op", "aten::add", "\"ts\": 1.5, \"dur\": 9") +
           R"json(], "distributedInfo": {"rank": 2}, "INFO": ["a ] b", "c } d"],
          "baseTimeNanoseconds": 1700000000000000000})json");
  EXPECT_EQ(trace.run().rank, 2);
  EXPECT_EQ(trace.ops()[0].begin_ns, 1700000000000001500);
  EXPECT_EQ(trace.ops()[0].end_ns, 1700000000000010500);
  EXPECT_TRUE(trace.losses().empty());
}

TEST_F(ChromeDialectsTest, DoesNotAddTheBaseToTimesThatCountFrom1970) {
  const Trace trace = Read(KinetoFile(
      XEvent("cpu_op", "aten::add", "\"ts\": 1661542444297228, \"dur\": 9"),
      "\"baseTimeNanoseconds\": 1700000000000000000,"));
  EXPECT_EQ(trace.ops()[0].begin_ns, 1661542444297228000);
}

TEST_F(ChromeDialectsTest, ABaseOutOfAllBoundsIsNone) {
  for (const char* base : {"-9223372036854775808", "9223372036854775807"}) {
    const Trace trace =
        Read(KinetoFile(XEvent("cpu_op", "aten::add", "\"ts\": 1, \"dur\": 9"),
                        "\"baseTimeNanoseconds\": " + std::string(base) + ","));
    ASSERT_EQ(trace.ops().size(), 1u) << base;
    EXPECT_EQ(trace.ops()[0].begin_ns, 1000) << base;
  }
}

TEST_F(ChromeDialectsTest, TimesThatTheBaseWouldCarryTooFarStayWhereTheyAre) {
  const Trace trace = Read(KinetoFile(
      XEvent("cpu_op", "a", "\"ts\": 1, \"dur\": 9") + "," +
          XEvent("cpu_op", "b", "\"ts\": 4500000000000000, \"dur\": 9"),
      "\"baseTimeNanoseconds\": 1700000000000000000,"));
  ASSERT_EQ(trace.ops().size(), 2u);
  EXPECT_EQ(trace.ops()[0].begin_ns, 1000);
}

TEST_F(ChromeDialectsTest, InventsNothing) {
  const Trace trace =
      Read(KinetoFile(XEvent("cpu_op", "aten::add", "\"ts\": 1, \"dur\": 9")));
  EXPECT_EQ(trace.run().rank, -1);
  EXPECT_EQ(trace.run().world_size, -1);
  EXPECT_EQ(trace.run().training_thread, kNone);
  EXPECT_TRUE(trace.run().devices.empty());
  EXPECT_TRUE(trace.steps().empty());
  for (Kind kind : {Kind::kStep, Kind::kKernel, Kind::kRuntimeCall, Kind::kCopy,
                    Kind::kMemory, Kind::kOpShapes, Kind::kLoader,
                    Kind::kSettings, Kind::kHostUsage, Kind::kPythonFrame}) {
    EXPECT_FALSE(trace.watched(kind)) << KindName(kind);
  }
  EXPECT_TRUE(trace.watched(Kind::kOp));
}

TEST_F(ChromeDialectsTest, OneRuntimeCallMeansTheGpuWasWatched) {
  const Trace trace = Read(KinetoFile(XEvent(
      "cuda_runtime", "cudaDeviceSynchronize", "\"ts\": 1, \"dur\": 1")));
  EXPECT_TRUE(trace.watched(Kind::kKernel));
  EXPECT_TRUE(trace.watched(Kind::kCopy));
  EXPECT_FALSE(trace.has_device_work());
}

TEST_F(ChromeDialectsTest, RecognisesMarksThatATbFlavourFileCallsOps) {
  const Trace trace = Read(KinetoFile(
      XEvent("cpu_op", "Optimizer.step#SGD.step", "\"ts\": 1, \"dur\": 9") +
      "," + XEvent("cpu_op", "nccl:all_reduce", "\"ts\": 2, \"dur\": 3") + "," +
      XEvent("user_annotation", "my scope", "\"ts\": 3, \"dur\": 1")));
  ASSERT_EQ(trace.ranges().size(), 3u);
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kOptimizer);
  EXPECT_EQ(trace.ranges()[1].kind, RangeKind::kCollective);
  EXPECT_EQ(trace.ranges()[2].kind, RangeKind::kUser);
  EXPECT_TRUE(trace.ops().empty());
}

// Returns a collective as in files of 2022.
std::string OldCollective(std::string_view dims) {
  return XEvent("cpu_op", "nccl:all_to_all", "\"ts\": 2, \"dur\": 3",
                R"("Input type": ["float", ""], "Input Dims": [)" +
                    std::string(dims) + ", []]");
}

TEST_F(ChromeDialectsTest, TakesTheSizeOfACollectiveFromItsRange) {
  const Trace trace = Read(KinetoFile(OldCollective("[512, 1024]")));
  ASSERT_EQ(trace.communications().size(), 1u);
  const Communication& row = trace.communications()[0];
  EXPECT_EQ(trace.name(row.name), "all_to_all");
  EXPECT_EQ(trace.name(row.dtype), "float");
  EXPECT_EQ(row.in_elements, 512 * 1024);
  EXPECT_EQ(row.end_ns - row.begin_ns, 3000);
  EXPECT_EQ(trace.ranges()[0].kind, RangeKind::kCollective);
  EXPECT_TRUE(trace.watched(Kind::kCommunication));
}

TEST_F(ChromeDialectsTest, ARangeWithoutATensorTellsNoSize) {
  for (const char* dims : {"[]", "[[4, 4], [2]]"}) {
    const Trace trace = Read(KinetoFile(OldCollective(dims)));
    EXPECT_EQ(trace.ranges().size(), 1u) << dims;
    EXPECT_TRUE(trace.communications().empty()) << dims;
    EXPECT_FALSE(trace.watched(Kind::kCommunication)) << dims;
  }
}

TEST_F(ChromeDialectsTest, DimsThatNoTensorHasTellNoSize) {
  for (const char* dims :
       {"[4294967296, 4294967296]", "[-4, 8]", "[0, -9223372036854775807]"}) {
    const Trace trace = Read(KinetoFile(OldCollective(dims)));
    EXPECT_TRUE(trace.communications().empty()) << dims;
  }
}

TEST_F(ChromeDialectsTest, MetadataOfCollectivesGoesBeforeTheSizesOfRanges) {
  const Trace trace = Read(
      KinetoFile(OldCollective("[512, 1024]") + "," +
                 XEvent("cpu_op", "record_param_comms", "\"ts\": 3, \"dur\": 1",
                        R"("Collective name": "all_to_allv", "dtype": "Float",
                "In msg nelems": 77, "Out msg nelems": 77, "Group size": 2)")));
  ASSERT_EQ(trace.communications().size(), 1u);
  EXPECT_EQ(trace.communications()[0].in_elements, 77);
}

TEST_F(ChromeDialectsTest, NamesThreadsThatDidSomething) {
  const Trace trace = Read(KinetoFile(
      R"json({"name": "thread_name", "ph": "M", "ts": 0, "pid": 10, "tid": 11,
          "args": {"name": "thread 11 (python)"
}
},
         {"name": "thread_name", "ph": "M", "ts": 0, "pid": 0, "tid": 7,
          "args": {"name": "stream 7"}},)json" +
      XEvent("cpu_op", "aten::add", "\"ts\": 1, \"dur\": 9")));
  ASSERT_EQ(trace.threads().size(), 1u);
  EXPECT_EQ(trace.name(trace.threads()[0].name), "thread 11 (python)");
}

// torch.profiler writes garbage collections among the Python frames (from
// PyTorch 2.9 on).
TEST_F(ChromeDialectsTest, ACollectionOfGarbageIsARange) {
  const Trace trace = Read(KinetoFile(
      XEvent("python_function", "Python GC", "\"ts\": 1, \"dur\": 9")));
  EXPECT_TRUE(trace.python_frames().empty());
  ASSERT_EQ(trace.ranges().size(), 1u);
  EXPECT_EQ(trace.name(trace.ranges()[0].name), "Python GC");
}

TEST_F(ChromeDialectsTest, TheNameOfTheFileHasTheMachine) {
  const auto host_of = [&](const std::string& name,
                           std::string_view header = "") {
    const absl::StatusOr<Trace> trace = TryRead(
        KinetoFile(XEvent("cpu_op", "aten::add", "\"ts\": 1, \"dur\": 9"),
                   header),
        name);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? trace->run().host : "";
  };
  // The form that tensorboard_trace_handler writes; the process is 10.
  EXPECT_EQ(host_of("gpu-node_3_10.1700000000000000000.pt.trace.json"),
            "gpu-node_3");
  // The header takes precedence.
  EXPECT_EQ(host_of("a_10.17.pt.trace.json", "\"host_name\": \"b\","), "b");
  // Names chosen by the program.
  EXPECT_EQ(host_of("worker_11.1700000000000000000.pt.trace.json"), "");
  EXPECT_EQ(host_of("worker_10.pt.trace.json"), "");
  EXPECT_EQ(host_of("worker_10.17.json"), "");
  EXPECT_EQ(host_of("rank10.17.pt.trace.json"), "");
}

TEST_F(ChromeDialectsTest, ReadsPythonFrames) {
  const Trace trace = Read(KinetoFile(
      XEvent("python_function", "nn.Module: Conv2d_0", "\"ts\": 1, \"dur\": 9",
             R"json("Python id": 4, "Python parent id": null,
                "Python module id": 0)json")));
  ASSERT_EQ(trace.python_frames().size(), 1u);
  EXPECT_EQ(trace.python_frames()[0].python_id, 4);
  EXPECT_EQ(trace.python_frames()[0].python_parent_id, -1);
  EXPECT_EQ(trace.python_frames()[0].module_id, 0);
}

}  // namespace
}  // namespace stepscope::chrome_dialects_test
