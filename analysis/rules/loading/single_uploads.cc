// Are tensors of one size uploaded one after another? Source: CUDA C++ Best
// Practices Guide, 10.1: many small transfers should be batched into one,
// because each has a cost of its own.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/host_copies.h"
#include "ops/backward_nodes.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace single_uploads_rules {
namespace {

// The tensors of one input are fewer. Our own choice.
constexpr size_t kLeastUploads = 16;

// Ops of the training thread that each upload one tensor of the same size, with
// nothing launched between, in one steady step.
struct UploadRun {
  size_t step = 0;
  int64_t bytes = 0;  // of each
  std::vector<RowId> ops = {};
  std::vector<HostCopy> copies = {};  // by op
};

// Returns the number of activities that each outermost op launches, by row of
// ops().
std::vector<uint32_t> CountActivities(const Trace& trace) {
  std::vector<uint32_t> counts(trace.ops().size());
  const auto count = [&](const DeviceWork& work) {
    if (work.op != kNone) ++counts[OutermostOf(trace, work.op)];
  };
  for (const Kernel& row : trace.kernels()) count(row);
  for (const Copy& row : trace.copies()) count(row);
  for (const Memset& row : trace.memsets()) count(row);
  return counts;
}

std::vector<UploadRun> FindRuns(const AnalysisContext& m) {
  const std::vector<uint32_t> activities = CountActivities(m.trace);
  std::map<RowId, HostCopy> uploads;  // by outermost op
  for (const HostCopy& one : FindHostCopies(m, Direction::kToDevice)) {
    const RowId op = m.trace.copies()[one.copy].op;
    if (one.steady && op != kNone) uploads[OutermostOf(m.trace, op)] = one;
  }
  std::vector<UploadRun> found;
  UploadRun open;
  const auto close = [&] {
    if (open.ops.size() >= kLeastUploads) found.push_back(open);
    open = {};
  };
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    if (m.trace.ops()[row].parent != kNone || activities[row] == 0) continue;
    const auto upload = uploads.find(row);
    if (upload == uploads.end() || activities[row] != 1) {
      close();
      continue;
    }
    const int64_t bytes = m.trace.copies()[upload->second.copy].bytes;
    const size_t step = SteadyStepAt(m.steps, m.trace.ops()[row].begin_ns);
    if (open.bytes != bytes || open.step != step) close();
    open.step = step;
    open.bytes = bytes;
    open.ops.push_back(row);
    open.copies.push_back(upload->second);
  }
  close();
  return found;
}

// Returns the edit that leaves one call and one wait of each run, and uploads
// its bytes at the rate of large copies, if that is known.
Edit InOneUpload(const AnalysisContext& m, const std::vector<UploadRun>& runs) {
  const BusRate rate = PinnedRate(m.trace, Direction::kToDevice);
  Edit edit;
  for (const UploadRun& run : runs) {
    const Span span = {m.trace.ops()[run.ops.front()].begin_ns,
                       m.trace.ops()[run.ops.back()].end_ns};
    edit.cuts.push_back({.thread = m.steps.thread,
                         .span = span,
                         .keep_ns = static_cast<double>(span.length()) /
                                    static_cast<double>(run.ops.size())});
    for (const HostCopy& one : run.copies) {
      if (one.wait == SIZE_MAX || &one == &run.copies.back()) continue;
      const HostWait& wait = m.waits.all[one.wait];
      for (RowId call : {wait.copy_call, wait.sync_call}) {
        if (call != kNone) edit.no_wait.push_back(call);
      }
    }
    if (rate.gb_per_s <= 0) continue;
    for (const HostCopy& one : run.copies) {
      const Copy& copy = m.trace.copies()[one.copy];
      const double ns = static_cast<double>(copy.bytes) / rate.gb_per_s;
      const auto taken = static_cast<double>(copy.end_ns - copy.begin_ns);
      edit.scales.push_back({{ActivityTable::kCopy, one.copy},
                             std::min(1.0, ns / std::max(taken, 1.0)),
                             /*assumed=*/true});
    }
  }
  return edit;
}

Verdict CheckSingleUploads(const AnalysisContext& m) {
  const std::vector<UploadRun> runs = FindRuns(m);
  if (runs.empty() || !RecursInMostSteps(m.steps, runs)) return Clean();
  const auto steps = static_cast<double>(m.steps.steady.size());
  double uploads = 0, bytes = 0, ns = 0;
  const UploadRun* longest = &runs.front();
  for (const UploadRun& run : runs) {
    const double count = static_cast<double>(run.ops.size());
    uploads += count / steps;
    bytes += count * static_cast<double>(run.bytes) / steps;
    ns += static_cast<double>(m.trace.ops()[run.ops.back()].end_ns -
                              m.trace.ops()[run.ops.front()].begin_ns) /
          steps;
    if (run.ops.size() > longest->ops.size()) longest = &run;
  }
  if (ns * 1e-6 < MinReportableGainMs(m)) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      MeanCount(uploads, "tensor") + " per step are uploaded one by one, " +
      Bytes(static_cast<double>(longest->bytes)) +
      " each, with no kernel between. These " + Bytes(bytes) + " take " +
      Milliseconds(ns * 1e-6) + " of host time of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step.";
  const Op& first = m.trace.ops()[longest->ops.front()];
  finding.where = CallSites(m.trace).Place(
      m.steps.thread, first.begin_ns,
      m.trace.copies()[longest->copies.front().copy].op);
  finding.examples.push_back(
      {m.steps.windows[longest->step].number, first.begin_ns,
       m.trace.ops()[longest->ops.back()].end_ns,
       std::to_string(longest->ops.size()) + " uploads of " +
           Bytes(static_cast<double>(longest->bytes))});
  finding.assumption =
      "one call takes as long as one of these, and copies at the rate of large "
      "uploads from pinned memory";
  finding.fix_cpp =
      "at::stack the tensors in pinned host memory, and upload them once: "
      "batch.to(device, dtype, /*non_blocking=*/true)";
  finding.fix_python =
      "stack the tensors in host memory, pinned if possible, and upload them "
      "once: torch.stack(tensors).to(device, non_blocking=True); keep the "
      "samples of a replay buffer as one tensor per field, and take batches by "
      "indexing";
  finding.wrong_if = "a tensor is read on the host right after its upload";
  // At most the time in which the device waits for the host or copies.
  double bound = 0;
  for (Cause cause : {Cause::kDispatch, Cause::kHostCode, Cause::kKernelLatency,
                      Cause::kBlockingCopy, Cause::kCopy}) {
    bound += m.MeanNs(cause);
  }
  return Fire(std::move(finding), InOneUpload(m, runs), std::min(ns, bound));
}

constexpr Rule kRules[] = {
    {.id = "single-uploads",
     .question = "Are tensors of one size uploaded one after another?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kOp, Kind::kCopy, Kind::kRuntimeCall},
     .causes = {Cause::kBlockingCopy, Cause::kDispatch, Cause::kHostCode,
                Cause::kCopy, Cause::kKernelLatency},
     .check = &CheckSingleUploads,
     .reference = "CUDA C++ Best Practices Guide, 10.1: batch many small "
                  "transfers into one",
     .detect =
         "in two thirds of the steps, at least 16 ops in a row upload one "
         "tensor each, all of one size, and nothing is launched between; "
         "they take 1 % of the step on the host",
     .avoid =
         "kernels run between the uploads, or their sizes differ, as those "
         "of weights do",
     .fix_cpp = "at::stack in pinned memory, then one upload",
     .fix_python = "torch.stack in pinned memory, then one upload",
     .change = "tensors uploaded at once"}};

}  // namespace
}  // namespace single_uploads_rules

extern const std::span<const Rule> kSingleUploads =
    single_uploads_rules::kRules;

}  // namespace stepscope
