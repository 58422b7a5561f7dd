#include <absl/status/status.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

#include "support/simulator/program_code.h"

namespace stepscope::simulator {
namespace {

void ReadGpu(const Statement& s, Machine& machine) {
  machine.gpu = s.Word(0).empty() ? "GPU" : s.Word(0);
  machine.pcie = s.Option("pcie", machine.pcie);
  machine.pageable = s.Option("pageable", machine.pageable);
  machine.bandwidth = s.Option("bandwidth", machine.bandwidth);
  machine.latency_ns = s.Option("latency", machine.latency_ns);
  machine.between_ns = s.Option("between", machine.between_ns);
  machine.queue = static_cast<int>(s.Option("queue", machine.queue));
  machine.sms = static_cast<int>(s.Option("sms", machine.sms));
  machine.compute_capability = s.Option("cc", machine.compute_capability);
  machine.device_bytes = s.Option("memory", machine.device_bytes);
  machine.clock_mhz = s.Option("clock", machine.clock_mhz);
  machine.gpus = static_cast<int>(s.Option("count", machine.gpus));
}

void ReadLoader(const Statement& s, Machine& machine) {
  machine.has_loader = true;
  machine.workers = static_cast<int>(s.Option("workers", 0));
  machine.batch_cpu_ns = s.Option("cpu", 0);
  machine.batch_io_ns = s.Option("io", 0);
  machine.batch_size = static_cast<int64_t>(s.Option("batch", -1));
  machine.loader_name = s.Text("name", machine.loader_name);
}

// Reads a line such as "group tp 0,1 2,3".
void ReadGroups(const Statement& s, Machine& machine) {
  for (size_t i = 1; i < s.words.size(); ++i) {
    RankGroup group{.name = s.Word(0),
                    .description = s.Text("described", "mesh_" + s.Word(0))};
    std::istringstream list(s.Word(i));
    for (std::string rank; std::getline(list, rank, ',');) {
      group.ranks.push_back(std::atoi(rank.c_str()));
    }
    machine.groups.push_back(std::move(group));
  }
}

// Reads a directive. Returns false if the statement is not a directive.
bool Read(const Statement& s, Machine& machine) {
  if (s.verb == "cores") {
    machine.cores = static_cast<int>(s.Number(0));
  } else if (s.verb == "others") {
    machine.others = static_cast<int>(s.Number(0));
  } else if (s.verb == "intra_op") {
    machine.threads = static_cast<int>(s.Number(0));
    machine.serial = s.Option("serial", machine.serial);
  } else if (s.verb == "gpu") {
    ReadGpu(s, machine);
  } else if (s.verb == "ranks") {
    machine.ranks = static_cast<int>(s.Number(0));
    machine.network = s.Option("network", machine.network);
    machine.network_latency_ns =
        s.Option("latency", machine.network_latency_ns);
    machine.hosts = static_cast<int>(s.Option("hosts", 1));
  } else if (s.verb == "group") {
    ReadGroups(s, machine);
  } else if (s.verb == "loader") {
    ReadLoader(s, machine);
  } else if (s.verb == "steps") {
    machine.steps = static_cast<int>(s.Number(0));
    machine.warmup = static_cast<int>(s.Option("warmup", machine.warmup));
  } else if (s.verb == "recorder") {
    machine.live = !s.Says("kineto");
    machine.sync_rows = s.Says("sync");
    machine.record_cost_ns = s.Option("cost", 0);
    machine.lost_calls = s.Option("lose", 0);
    machine.dropped_records = static_cast<int64_t>(s.Option("drop", 0));
  } else if (s.verb == "jitter") {
    machine.host_jitter = s.Option("host", machine.host_jitter);
    machine.device_jitter = s.Option("device", machine.device_jitter);
    machine.loader_jitter = s.Option("loader", machine.loader_jitter);
    machine.clock_error_ns = s.Option("clock", machine.clock_error_ns);
  } else if (s.verb == "throttle") {
    machine.samples = true;
    machine.throttle_frac = s.Number(0);
    machine.throttle_after = static_cast<int>(s.Option("after", 2));
    machine.throttle_reasons = static_cast<int64_t>(s.Option("reasons", 4));
    machine.throttle_rank = static_cast<int>(s.Option("rank", -1));
  } else if (s.verb == "allocator") {
    machine.samples = true;
    machine.allocated = s.Option("used", -1);
    machine.reserved = s.Option("reserved", -1);
    machine.stuck = s.Option("stuck", -1);
    machine.reserved_growth = s.Option("growth", 0);
    machine.retries = static_cast<int64_t>(s.Option("retries", 0));
  } else if (s.verb == "set") {
    machine.settings[s.Word(0)] = s.Word(1);
  } else {
    return s.verb == "define" || s.verb == "step";
  }
  return true;
}

}  // namespace

absl::StatusOr<Machine> MachineOf(const std::vector<Statement>& program) {
  Machine machine;
  bool has_step = false;
  for (const Statement& statement : program) {
    if (!Read(statement, machine)) {
      return absl::InvalidArgumentError(
          "line " + std::to_string(statement.line) + ": \"" + statement.verb +
          "\" is no directive of a machine");
    }
    has_step |= statement.verb == "step";
  }
  if (!has_step) return absl::InvalidArgumentError("there is no step { }");
  if (machine.gpus < 1 || machine.gpus > kMostGpus) {
    return absl::InvalidArgumentError("a process drives 1 to 8 gpus");
  }
  if (machine.cores < 1 || machine.threads < 1 || machine.steps < 1 ||
      machine.warmup < 0 || machine.ranks < 1 || machine.workers < 0 ||
      machine.others < 0 || machine.hosts < 1) {
    return absl::InvalidArgumentError(
        "cores, intra_op, ranks, hosts and steps are at least 1");
  }
  RankGroup all{.description = "default_pg"};
  for (int r = 0; r < machine.ranks; ++r) all.ranks.push_back(r);
  machine.groups.insert(machine.groups.begin(), std::move(all));
  return machine;
}

}  // namespace stepscope::simulator
