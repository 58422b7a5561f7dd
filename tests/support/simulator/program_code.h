// A simulated program that is ready to run: for each rank, what its threads do
// in order, the rows that result, and the work for the device.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/event.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/simulator/program_text.h"

namespace stepscope::simulator {

inline constexpr int kMostGpus = 8;

// Ranks that communicate with each other.
struct RankGroup {
  std::string name = {};         // name in `collective group=`
  std::string description = {};  // name in the recording
  std::vector<int> ranks = {};
};

// The machine that runs a program. Times are in ns, rates in bytes per ns.
struct Machine {
  int cores = 8;
  int threads = 1;
  int others = 0;        // busy threads of other programs on these cores
  double serial = 0.05;  // serial share of a parallel op
  int ranks = 1;
  int hosts = 1;                  // each with the same number of ranks
  std::vector<RankGroup> groups;  // the first group has all ranks
  double network = 80, network_latency_ns = 25'000;
  std::string gpu;  // "": none
  double pcie = 24, pageable = 6, bandwidth = 2000, latency_ns = 3'000;
  double between_ns = 900;  // idle between two kernels of a stream
  int queue = 1024, sms = 108;
  double compute_capability = 8.0;
  double device_bytes = 80e9;
  double clock_mhz = -1;     // as the driver reports it
  int gpus = 1;              // number that this process uses
  double throttle_frac = 0;  // share by which kernels take longer
  int throttle_after = 2;    // from this recorded step on
  int throttle_rank = -1;    // -1: all
  int64_t throttle_reasons = 0;
  bool samples = false;  // samples clocks and allocator per step
  double allocated = -1, reserved = -1, stuck = -1;  // bytes
  double reserved_growth = 0;                        // bytes per step
  int64_t retries = 0;                               // per step
  bool has_loader = false;
  int workers = 0;
  double batch_cpu_ns = 0, batch_io_ns = 0;
  std::string loader_name = "train";
  int64_t batch_size = -1;
  int steps = 6, warmup = 4;
  bool live = true, sync_rows = false;
  double record_cost_ns = 0;
  double lost_calls = 0;        // share of the runtime calls
  int64_t dropped_records = 0;  // device records reported as dropped
  double host_jitter = 0.03, device_jitter = 0.01, loader_jitter = 0.05;
  double clock_error_ns = 300;
  std::map<std::string, std::string> settings;
};

enum class Do : uint8_t {
  kWork,         // ns on this thread
  kPool,         // ns of one thread's work, shared by the pool
  kSleep,        // ns without a core
  kOpen,         // starts a row
  kClose,        // ends a row
  kPut,          // adds work to its stream
  kAwaitRoom,    // until the launch queue has room
  kAwaitWork,    // until work is done
  kAwaitStream,  // until all work so far in stream `index` is done
  kAwaitDevice,
  kTake,      // takes a batch
  kHandOver,  // lets the autograd thread continue
  kAwaitTurn,
  kFinish,  // the autograd thread has finished
  kAwaitFinish,
};

struct Instruction {
  Do what = Do::kWork;
  double ns = 0;
  int index = 0;  // index of a row or work; a stream; a turn
};

enum class RowIs : uint8_t { kStep, kOp, kRange, kCall, kOverhead, kMemory };

// The row that a statement leaves in the recording after it ran.
struct Row {
  RowIs is = RowIs::kOp;
  std::string name = {};
  int step = 0;
  bool autograd = false;  // on the autograd thread
  double begin = 0, end = 0;
  OpKind op_kind = OpKind::kOperator;
  int64_t sequence = -1;
  RangeKind range_kind = RangeKind::kUser;
  std::string detail = {};  // of a range
  int64_t correlation = -1;
  std::string inputs = {};
  int collective = -1;  // record_param_comms: index in its group
  int group = 0;        // index in Machine::groups
  double bytes = 0;
  std::string dtype = {};
  std::string kind = {};  // "all_reduce"; empty: not recorded
};

enum class WorkIs : uint8_t {
  kKernel,
  kCopy,
  kMemset,
  kCollective,
  kMark,
  kWait,
  kDelay  // blocks its stream; no recorder sees it
};

struct DeviceTask {
  WorkIs is = WorkIs::kKernel;
  std::string name = {};
  int step = 0;
  int64_t stream = 7;
  int device = 0;  // one of the process's devices
  int64_t correlation = -1;
  double amount = 0;  // ns if alone on the device; bytes of a copy
  double fill = 1;
  double rate = 1;  // copies: maximum in bytes per ns
  bool upload = false;
  bool on_bus = false;  // between host and device
  double bytes = 0;
  MemoryKind source = MemoryKind::kUnknown;
  MemoryKind destination = MemoryKind::kUnknown;
  bool is_async = true;
  int mark = -1;  // kWait: the kMark to wait for; -1: none
  // Equal on all ranks that take part: the index of the group and the number in
  // the group; for a message between two ranks also the sender and the
  // receiver.
  std::array<int, 4> meets_as = {-1, -1, -1, -1};
  int meeting = -1;
  int64_t graph = 0;
  std::array<int32_t, 3> grid = {0, 0, 0};
  std::array<int32_t, 3> block = {256, 1, 1};
  float waves = -1, occupancy = -1;
  int32_t registers = -1, shared_bytes = -1;
  // State while it runs.
  double submitted = -1, begin = -1, end = -1, left = 0;
  bool running = false, done = false;
};

// A thread's instructions, and its position in them.
struct ThreadCode {
  std::vector<Instruction> code;
};

struct RankCode {
  ThreadCode training, autograd;
  std::vector<Row> rows;
  std::vector<DeviceTask> tasks;
};

// Draws random factors around 1. Each rank has its own.
class Jitter {
 public:
  explicit Jitter(uint64_t seed) : random_(seed) {}
  double Around(double spread) {
    if (spread <= 0) return 1;
    return std::lognormal_distribution<double>(-spread * spread / 2,
                                               spread)(random_);
  }
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

 private:
  std::mt19937_64 random_;
};

// Returns the machine that a program's directives describe. InvalidArgument
// names the line.
absl::StatusOr<Machine> MachineOf(const std::vector<Statement>& program);

// Returns what `rank` does in warmup + steps steps.
absl::StatusOr<RankCode> CodeOf(const std::vector<Statement>& program,
                                const Machine& machine, int rank,
                                Jitter& jitter);

}  // namespace stepscope::simulator
