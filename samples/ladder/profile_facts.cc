#include "profile_facts.h"

#include <simdjson.h>
#include <stepscope/kernel_class.h>
#include <stepscope/read.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "measure/run_times.h"

namespace ladder {
namespace {

namespace dom = simdjson::dom;

std::string TextOf(dom::object object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) ? std::string() : std::string(text);
}

std::string MachineOf(dom::object run) {
  std::string machine = TextOf(run, "cpu_model");
  int64_t cores = 0;
  if (!run["usable_cores"].get(cores) && cores > 0) {
    machine += ", " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
  }
  dom::array devices;
  if (!run["devices"].get(devices)) {
    for (dom::element device : devices) {
      std::string_view name;
      if (!device.get(name)) machine += "; " + std::string(name);
    }
  }
  return machine + "; LibTorch " + TextOf(run, "torch_version");
}

// Kernels whose name does not tell count as none: the share is the least that
// it can be.
double TensorCoreFrac(const stepscope::Trace& trace) {
  int64_t all_ns = 0, tensor_ns = 0;
  for (const stepscope::Kernel& kernel : trace.kernels()) {
    int64_t ns = kernel.end_ns - kernel.begin_ns;
    all_ns += ns;
    if (stepscope::TraitsOfKernel(trace.name(kernel.name)).tensor_cores ==
        stepscope::TensorCores::kYes) {
      tensor_ns += ns;
    }
  }
  if (all_ns == 0) return -1;
  return static_cast<double>(tensor_ns) / static_cast<double>(all_ns);
}

}  // namespace

absl::StatusOr<ProfileFacts> ParseProfile(const std::string& json,
                                          const std::string& what) {
  dom::parser parser;
  dom::element root;
  dom::object steps, split, run;
  ProfileFacts facts;
  if (parser.parse(simdjson::padded_string(json)).get(root) ||
      root["steps"].get(steps) || root["time_split_ms"].get(split) ||
      root["run"].get(run) || steps["mean_ms"].get(facts.step_ms)) {
    return absl::DataLossError(what + ": no advice of version 1");
  }
  if (root["has_gpu"].get(facts.has_gpu)) facts.has_gpu = false;
  double busy_ms = 0;
  for (const auto& [key, value] : split) {
    double ms = 0;
    if (value.get(ms)) continue;
    facts.split.emplace_back(key, ms);
    if (key == "compute" || key == "communication") busy_ms += ms;
  }
  std::ranges::stable_sort(facts.split, [](const auto& a, const auto& b) {
    return a.second > b.second;
  });
  if (facts.has_gpu && facts.step_ms > 0) {
    facts.busy_frac = busy_ms / facts.step_ms;
  }
  facts.machine = MachineOf(run);
  return facts;
}

absl::StatusOr<ProfileFacts> ReadProfile(const std::string& advice_path) {
  absl::StatusOr<std::string> json = measure::ReadFile(advice_path);
  if (!json.ok()) return json.status();
  absl::StatusOr<ProfileFacts> facts = ParseProfile(*json, advice_path);
  if (!facts.ok() || !facts->has_gpu) return facts;
  std::filesystem::path cycle =
      std::filesystem::path(advice_path).parent_path().parent_path();
  absl::StatusOr<stepscope::Trace> trace =
      stepscope::ReadTrace((cycle / "trace" / "rank0.json.gz").string());
  if (!trace.ok()) return trace.status();
  facts->tensor_core_frac = TensorCoreFrac(*trace);
  return facts;
}

}  // namespace ladder
