// The rows of a Trace: one plain struct per kind of event, and the ids that
// link them.
//
// Times are integer nanoseconds since the Unix epoch, half-open [begin_ns,
// end_ns). Text is interned: a NameId is resolved by Trace::name(). A link is a
// row index into another table of the same Trace, or kNone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

using NameId = uint32_t;  // 0 is always the empty text
using RowId = uint32_t;   // an index into one table of the Trace
inline constexpr RowId kNone = 0xffffffff;

// The kinds of events that a recorder can watch. A rule that needs a kind which
// was not watched is skipped, because it cannot tell "no such event" from "not
// recorded".
enum class Kind : uint8_t {
  kStep,
  kRange,
  kOp,
  kOpShapes,
  kOpStacks,
  kMemory,
  kCommunication,
  kRuntimeCall,
  kKernel,
  kCopy,
  kMemset,
  kSync,
  kOverhead,
  kPythonFrame,
  kSettings,
  kHostUsage,
  kLoader,  // waits for batches are visible
  kDeviceSample,
  kDeviceMemory,
  kCount
};

// The name of a kind as files and reports write it ("op", "kernel", ...).
const char* KindName(Kind kind);

// A host thread.
struct Thread {
  int64_t pid = 0;
  int64_t tid = 0;  // as the operating system (or the file) numbers it
  // The number that RecordFunction gave the thread; backward nodes refer to it.
  // 0 if unknown.
  uint64_t torch_thread = 0;
  NameId name = 0;
};

enum class OpKind : uint8_t {
  kOperator,  // a dispatched operator ("aten::add")
  kBackward,  // an autograd node or engine range
              // ("autograd::engine::evaluate_function: AddBackward0")
};

// One call of an operator or autograd node on a host thread. The ops of one
// thread nest.
struct Op {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  // Autograd's sequence number, shared by a forward op and its backward node;
  // -1 if it has none.
  int64_t sequence = -1;
  // On backward nodes: the torch_thread of the forward op; else 0.
  uint64_t forward_thread = 0;
  NameId name = 0;
  RowId thread = kNone;  // in threads()
  // The innermost enclosing op on the same thread, in ops().
  RowId parent = kNone;
  RowId forward = kNone;  // on backward nodes: the forward op, in ops()
  RowId inputs = kNone;   // in op_inputs(); kNone if shapes were not recorded
  RowId stack = kNone;    // in stacks()
  // For a call of code that a compiler generated (Inductor), a row of stacks()
  // with always two frames: the file with the code, and the parameters it was
  // compiled with ("XBLOCK=2,R0_BLOCK=2048"). One of the two may be empty.
  RowId code = kNone;
  OpKind kind = OpKind::kOperator;
};

// One argument of an operator. A tensor has dims (and strides) and a list of
// tensors has elements. Any other argument may have its value as text in
// `concrete`.
struct Argument {
  NameId type = 0;  // as Kineto writes it: "float", "c10::Half", "long int",
                    // "Scalar", "TensorList", ""
  std::vector<int64_t> dims = {};
  std::vector<int64_t> strides = {};  // empty if unknown
  NameId concrete = 0;
  std::vector<Argument> elements = {};
  bool operator==(const Argument&) const = default;
};

// The arguments of an operator call. Equal lists are stored once.
struct OpInputs {
  std::vector<Argument> arguments;
  bool operator==(const OpInputs&) const = default;
};

// A list of texts. A call stack has frames "file(line): function", innermost
// first. For Kernel::captured_ops each frame is an operator; for Op::code, see
// there. Equal stacks are stored once.
struct Stack {
  std::vector<NameId> frames;
  bool operator==(const Stack&) const = default;
};

enum class RangeKind : uint8_t {
  kUser,        // any user annotation
  kPhase,       // data, forward, backward, optimizer, validate
  kLoader,      // waiting for a batch: "enumerate(DataLoader)#....__next__"
  kOptimizer,   // "Optimizer.step#...", "Optimizer.zero_grad#..."
  kModule,      // a module's forward; the name is its path ("layer1.0.conv1")
  kCollective,  // "nccl:all_reduce", "gloo:...",
                // "DistributedDataParallel.forward"
  kNvtx,
};

// A named interval on a host thread that is not an operator. Step marks are in
// steps(), not here.
struct Range {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  NameId name = 0;
  NameId detail = 0;  // modules: the class ("Conv2d"); loaders: the loader's
                      // name ("train"); else empty
  RowId thread = kNone;
  RangeKind kind = RangeKind::kUser;
};

// One training step: its window on the training thread.
struct Step {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t number = 0;  // counted by the loop, from 0
  RowId thread = kNone;
};

// A call of the CUDA (or HIP) runtime or driver, on a host thread.
struct RuntimeCall {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t correlation = -1;
  NameId name = 0;
  RowId thread = kNone;
  RowId op = kNone;  // innermost op that made the call
  int32_t return_code = 0;
  bool is_driver = false;
};

// The fields that all device activities (kernels, copies, memsets) have: when
// and where the activity ran, and which call launched it.
struct DeviceWork {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t correlation = -1;
  int32_t device = 0;
  int64_t stream = 0;
  int32_t context = 0;
  RowId call = kNone;  // in runtime_calls(); kNone: the launch is not recorded
  RowId op = kNone;    // the op that launched it, in ops()
};

struct Kernel : DeviceWork {
  NameId name = 0;
  std::array<int32_t, 3> grid = {0, 0, 0};  // 0 if unknown
  std::array<int32_t, 3> block = {0, 0, 0};
  int32_t registers_per_thread = -1;  // -1 if unknown
  int32_t shared_memory_bytes = -1;
  float blocks_per_sm = -1;
  float warps_per_sm = -1;
  float occupancy_frac = -1;  // estimate of the achieved one, 0 to 1; -1 if
                              // unknown
  int64_t graph = 0;          // CUDA graph and node; 0 if none
  int64_t graph_node = 0;
  // Kernels of a CUDA graph whose capture was recorded: the operators that were
  // open when the node was captured, in stacks(), innermost first; and the
  // module's path, or the program's own name for the place. `op` is the op that
  // replayed the graph.
  RowId captured_ops = kNone;
  NameId captured_module = 0;
  RowId communication = kNone;  // collectives: in communications()
  // When the driver put the launch into its command buffer, and when it
  // submitted that buffer to the device; -1 if not recorded.
  int64_t queued_ns = -1;
  int64_t submitted_ns = -1;
};

enum class MemoryKind : uint8_t {
  kUnknown,
  kPageable,
  kPinned,
  kDevice,
  kArray,
  kManaged,
  kHost
};

struct Copy : DeviceWork {
  NameId name = 0;  // as the file has it; empty in a live recording
  MemoryKind source = MemoryKind::kUnknown;
  MemoryKind destination = MemoryKind::kUnknown;
  int64_t bytes = -1;  // -1 if unknown
  bool is_async = true;
};

struct Memset : DeviceWork {
  NameId name = 0;
  int64_t bytes = -1;
};

// A wait of the host, or of a stream, for the device; from CUPTI's
// synchronization records.
struct Sync {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t correlation = -1;
  // "Stream Sync", "Event Sync", "Stream Wait Event" or "Context Sync".
  NameId name = 0;
  int32_t device = 0;
  int64_t stream = -1;
  int64_t wait_on_stream = -1;
  int64_t wait_on_record_correlation = -1;
  RowId call = kNone;
};

// A stream as the driver created it.
struct Stream {
  int64_t id = 0;  // as DeviceWork names it
  int32_t context = 0;
  int32_t device = -1;  // -1 if unknown
  int32_t priority = 0;
  bool is_default = false;       // the context's null stream
  bool is_non_blocking = false;  // does not wait for the null stream
  NameId name = 0;
};

// A request to the driver, or to one of its pools, for device, pinned or
// managed memory. Requests to caching allocators are in allocations().
struct DeviceMemory {
  int64_t time_ns = 0;
  int64_t correlation = -1;
  NameId name = 0;  // "alloc", "release", "pool created", "pool destroyed",
                    // "pool trimmed"
  MemoryKind kind = MemoryKind::kUnknown;
  bool is_async = false;  // stream-ordered, from a pool
  int32_t device = 0;
  int64_t stream = -1;           // stream-ordered requests only
  uint64_t address = 0;          // of the block; of the pool for pool rows
  int64_t bytes = 0;             // > 0 allocated, < 0 released, 0 for pool rows
  int64_t pool_bytes = -1;       // size of the pool afterwards; -1 if none
  int64_t pool_used_bytes = -1;  // of these, in use
};

// The state of a device at one moment: its clocks, power and free memory from
// the driver, its hardware counters, or the memory that LibTorch's caching
// allocator holds. -1: the value is not part of this sample.
// Kind::kDeviceSample is watched if the driver was asked.
struct DeviceSample {
  int64_t time_ns = 0;
  int64_t step = -1;  // the step's number, if taken at its end
  int32_t device = 0;
  int32_t sm_clock_mhz = -1;
  int32_t memory_clock_mhz = -1;
  int64_t throttle_reasons = -1;  // bits as NVML numbers them: 1 idle, 2 user
                                  // clocks, 4 power cap, 8 hardware slowdown,
                                  // 32 and 64 heat, 128 power brake
  int32_t temperature_c = -1;
  int32_t power_mw = -1;
  int32_t power_limit_mw = -1;
  int32_t fan_percent = -1;
  int64_t pcie_sent_bytes_per_s = -1;  // over the last 20 ms
  int64_t pcie_received_bytes_per_s = -1;
  int64_t nvlink_sent_bytes_per_s = -1;  // since the previous such sample
  int64_t nvlink_received_bytes_per_s = -1;
  // Hardware counters over the counted_ns before time_ns, as shares of the
  // device's peak, 0 to 1: busy multiprocessors, their Tensor Cores, and memory
  // bandwidth.
  int64_t counted_ns = -1;
  float sm_active_frac = -1;
  float tensor_active_frac = -1;
  float dram_frac = -1;
  int64_t free_bytes = -1;  // device memory, all processes counted
  int64_t total_bytes = -1;
  // Memory of the caching allocator: in use by tensors; taken from the driver;
  // and, of the memory taken, the free parts of segments that also hold
  // tensors. The allocator cannot return those parts to the driver.
  int64_t allocated_bytes = -1;
  int64_t reserved_bytes = -1;
  int64_t inactive_split_bytes = -1;
  int64_t segments = -1;  // number of segments held
  // Since the previous step: segments requested from the driver and returned to
  // it, requests that succeeded only after the whole cache had been returned,
  // and requests that failed.
  int64_t segment_allocs = -1;
  int64_t segment_frees = -1;
  int64_t alloc_retries = -1;
  int64_t out_of_memory = -1;
};

// Time that the profiler or the driver spent on its own work, such as flushing
// buffers.
struct Overhead {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  NameId name = 0;
  RowId thread = kNone;
};

// A Python frame (torch.profiler with_stack) on a host thread.
struct PythonFrame {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t python_id = -1;
  int64_t python_parent_id = -1;
  int64_t module_id = -1;  // -1 if the frame is not a call of a module
  NameId name = 0;
  RowId thread = kNone;
};

// An allocation (bytes > 0) or a release (bytes < 0) by an allocator.
struct Allocation {
  int64_t time_ns = 0;
  uint64_t address = 0;
  int64_t bytes = 0;
  // After this event, on that device; -1 if unknown.
  int64_t total_allocated_bytes = -1;
  int64_t total_reserved_bytes = -1;
  // torch's number: 0 CPU, 1 CUDA, 6 in some ROCm files.
  int32_t device_type = 0;
  int32_t device = -1;  // -1 for the CPU
  RowId thread = kNone;
  RowId op = kNone;     // innermost op running on that thread
  RowId other = kNone;  // of an allocation: its release; of a release: its
                        // allocation
};

// One collective call, seen from the host (c10d's record_param_comms).
struct Communication {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  NameId name = 0;  // "allreduce", "all_to_all", ...
  NameId dtype = 0;
  NameId group_name = 0;
  NameId group_description = 0;
  NameId group_ranks = 0;  // as text
  int64_t in_elements = -1;
  int64_t out_elements = -1;
  int64_t sequence = -1;
  int32_t group_size = -1;
  RowId thread = kNone;
  RowId op = kNone;
};

// LibTorch's process-wide settings, read once per step. Switches are 0 or 1; -1
// means unknown.
struct Settings {
  int64_t step = -1;
  int64_t time_ns = 0;
  int8_t grad_mode = -1;
  int8_t inference_mode = -1;
  int8_t autocast_cpu = -1;
  int8_t autocast_cuda = -1;
  int8_t cudnn_enabled = -1;
  int8_t cudnn_benchmark = -1;
  int8_t deterministic = -1;
  int8_t tf32_cublas = -1;
  int8_t tf32_cudnn = -1;
  int8_t anomaly_mode = -1;
  int32_t intra_op_threads = -1;
  int32_t inter_op_threads = -1;
  NameId autocast_dtype = 0;    // "c10::BFloat16", ...
  NameId matmul_precision = 0;  // "highest", "high", "medium"
};

// What the operating system counted during one step, as differences between its
// start and its end. -1 means unknown.
struct HostUsage {
  int64_t step = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t process_cpu_ns = -1;  // all threads of this process
  int64_t training_thread_cpu_ns = -1;
  int64_t run_delay_ns = -1;  // training thread: runnable but not running
  int64_t involuntary_switches = -1;  // training thread
  int64_t read_bytes = -1;            // process, from storage
  int64_t write_bytes = -1;
  // All workers of the loader, threads or child processes, together.
  int64_t loader_cpu_ns = -1;
  int64_t loader_read_bytes = -1;
  int32_t loader_workers = -1;
};

// A loader that fed the training thread.
struct Loader {
  NameId name = 0;  // "train"
  NameId kind = 0;  // "in-process", "threads", "processes"
  // 0: the thread that asks for a batch makes it itself; -1: unknown.
  int32_t workers = -1;
  int64_t batch_size = -1;
  int8_t pin_memory = -1;          // 0, 1; -1: unknown
  int8_t persistent_workers = -1;  // 0, 1; -1: unknown
  // Batches that each worker prepares in advance; -1: unknown, or no workers.
  int32_t prefetch_factor = -1;
};

enum class Severity : uint8_t { kNote, kWarning, kError };

// Something that is missing from the Trace, and why. Any code that drops an
// event adds a Loss; exporters and reports show all losses.
struct Loss {
  std::string name;    // kebab-case, stable: "buffer-full", "truncated-file",
                       // "cupti-unavailable"
  std::string detail;  // what happened, in words, with what to do about it
  int64_t count = 0;   // events lost, or times it happened; -1 if unknown
  Severity severity = Severity::kWarning;
};

// A device as its driver describes it. -1 or "" means unknown.
struct Device {
  int32_t ordinal = 0;
  std::string name;
  std::string vendor;  // "Nvidia", "AMD", ""
  int64_t memory_bytes = -1;
  int32_t compute_major = -1;
  int32_t compute_minor = -1;
  int32_t sm_count = -1;
  int32_t max_threads_per_sm = -1;
  int32_t warp_size = -1;
  int32_t regs_per_sm = -1;
  int64_t shared_memory_per_sm_bytes = -1;
  int64_t clock_khz = -1;
  int64_t memory_bandwidth_bytes_per_s = -1;
};

}  // namespace stepscope
