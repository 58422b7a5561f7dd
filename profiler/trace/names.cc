#include <stepscope/contains.h>
#include <stepscope/trace_builder.h>

#include <array>
#include <charconv>
#include <functional>

#include "name_table.h"

namespace stepscope {

namespace {

constexpr std::string_view kStepMark = "ProfilerStep#";

}  // namespace

const char* KindName(Kind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(Kind::kCount)>
      kNames = {"step",          "range",        "op",
                "op-shapes",     "op-stacks",    "memory",
                "communication", "runtime-call", "kernel",
                "copy",          "memset",       "sync",
                "overhead",      "python-frame", "settings",
                "host-usage",    "loader",       "device-sample",
                "device-memory"};
  return kind < Kind::kCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

// Uses the range names of torch.utils.data, torch.optim and torch.distributed.
RangeKind ClassifyRange(std::string_view name) {
  if (name.starts_with("enumerate(DataLoader)#") ||
      name.starts_with("enumerate(DataPipe)#")) {
    return RangeKind::kLoader;
  }
  if (name.starts_with("Optimizer.step#") ||
      name.starts_with("Optimizer.zero_grad#")) {
    return RangeKind::kOptimizer;
  }
  // c10d names the range after the backend of the process group.
  for (std::string_view backend : {"nccl:", "gloo:", "rccl:", "mpi:", "ucc:",
                                   "xccl:", "ccl:", "hccl:", "cncl:"}) {
    if (name.starts_with(backend)) return RangeKind::kCollective;
  }
  if (name == "DistributedDataParallel.forward" ||
      name == "DataParallel.forward" ||
      Contains(name, "torch.distributed.ddp.reducer")) {
    return RangeKind::kCollective;
  }
  return RangeKind::kUser;
}

bool LaunchesGraph(std::string_view call) {
  return call.find("GraphLaunch") != std::string_view::npos;
}

bool IsStepMark(std::string_view name) {
  if (!name.starts_with(kStepMark)) return false;
  name.remove_prefix(kStepMark.size());
  if (name.starts_with('-')) name.remove_prefix(1);
  return !name.empty() &&
         name.find_first_not_of("0123456789") == std::string_view::npos;
}

int64_t StepNumber(std::string_view name) {
  if (!IsStepMark(name)) return -1;
  name.remove_prefix(kStepMark.size());
  int64_t number = -1;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : -1;
}

// Open addressing with linear probing, because reading a trace interns millions
// of names, nearly all of them known. At most half of the slots are used, so
// that probes are short.
NameTable::NameTable(std::vector<std::string>* names)
    : names_(names), slots_(1024) {}

NameId NameTable::Intern(std::string_view text) {
  if (text.empty()) return 0;
  const auto hash = static_cast<uint32_t>(std::hash<std::string_view>{}(text));
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots_[at].id != 0) {
    // Compare the hash first: it is in the table, while the text is elsewhere.
    if (slots_[at].hash == hash && (*names_)[slots_[at].id] == text)
      return slots_[at].id;
    at = (at + 1) & mask;
  }
  const auto id = static_cast<NameId>(names_->size());
  names_->emplace_back(text);
  slots_[at] = {hash, id};
  if (names_->size() * 2 > slots_.size()) Grow();
  return id;
}

void NameTable::Grow() {
  std::vector<Slot> larger(slots_.size() * 2);
  const size_t mask = larger.size() - 1;
  for (const Slot& slot : slots_) {
    if (slot.id == 0) continue;
    size_t at = slot.hash & mask;
    while (larger[at].id != 0) at = (at + 1) & mask;
    larger[at] = slot;
  }
  slots_ = std::move(larger);
}

}  // namespace stepscope
