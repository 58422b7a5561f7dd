#include <stepscope/ranks.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "context/analysis_context.h"
#include "context/noise.h"
#include "context/rule.h"
#include "device/collectives.h"
#include "engine/report_of.h"

namespace stepscope {
namespace {

// FNV-1a, so that ranks of other builds and hosts agree.
class Hash {
 public:
  void Add(std::string_view text) {
    for (char c : text) AddByte(static_cast<unsigned char>(c));
    AddByte(0);
  }
  void Add(int64_t number) {
    for (int i = 0; i < 8; ++i) {
      AddByte(static_cast<unsigned char>(number >> (8 * i)));
    }
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

bool EndsTogether(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce ||
         kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter ||
         kind == CollectiveKind::kAllToAll;
}

std::vector<RankCollective> Shared(const AnalysisContext& m) {
  std::vector<RankCollective> list;
  std::map<std::pair<int64_t, uint64_t>, int32_t> ordinals;
  for (const Collective& one : m.collectives) {
    if (one.step == kNoStep ||
        m.steps.windows[one.step].kind != StepKind::kSteady) {
      continue;
    }
    Hash group;
    group.Add(m.trace.name(one.group));
    group.Add(static_cast<int64_t>(one.kind));
    group.Add(one.integer ? 1 : 0);
    RankCollective shared;
    shared.step = m.steps.windows[one.step].number;
    shared.group = group.value();
    shared.ordinal = ordinals[{shared.step, shared.group}]++;
    shared.ends_together = EndsTogether(one.kind);
    shared.begin_ns = one.moved.begin_ns;
    shared.end_ns = one.moved.end_ns;
    shared.exposed_ns = one.exposed_ns;
    list.push_back(shared);
  }
  return list;
}

void AddShape(const Argument& argument, Hash& hash) {
  for (int64_t dim : argument.dims) hash.Add(dim);
  for (const Argument& element : argument.elements) AddShape(element, hash);
}

std::vector<std::pair<int64_t, uint64_t>> StepShapes(const AnalysisContext& m) {
  std::vector<std::pair<int64_t, uint64_t>> shapes;
  if (!m.trace.watched(Kind::kOpShapes)) return shapes;
  for (size_t i : m.steps.steady) {
    const Span& host = m.steps.windows[i].host;
    Hash hash;
    const auto rows = m.tree.of_thread(m.steps.thread);
    const auto begin_of = [&](RowId row) {
      return m.trace.ops()[row].begin_ns;
    };
    for (auto it = std::ranges::lower_bound(rows, host.begin_ns, {}, begin_of);
         it != rows.end() && begin_of(*it) < host.end_ns; ++it) {
      const Op& op = m.trace.ops()[*it];
      if (op.inputs == kNone) continue;
      for (const Argument& argument :
           m.trace.op_inputs()[op.inputs].arguments) {
        AddShape(argument, hash);
      }
    }
    shapes.push_back({m.steps.windows[i].number, hash.value()});
  }
  return shapes;
}

// The device program takes the waits out; without a device, what the training
// thread does not spend in collectives is its own.
double HostMs(const AnalysisContext& m) {
  if (m.steps.steady.empty()) return -1;
  if (!m.has_gpu) {
    return m.stats.mean_ms - m.MeanNs(Cause::kCommunication) * 1e-6;
  }
  const DeviceProgram* program = m.replay.device();
  return program == nullptr || program->host_only_ns <= 0
             ? -1
             : program->host_only_ns * 1e-6;
}

}  // namespace

RankDigest DigestRank(const Trace& trace) {
  const AnalysisContext context(trace);
  RankDigest digest;
  digest.report = ReportOf(context);
  digest.report.path_slices.clear();  // for drawing one rank
  digest.collectives = Shared(context);
  digest.host_ms = HostMs(context);
  digest.noise_ms = NoiseOfMeanMs(context);
  digest.host_noise_ms =
      digest.noise_ms *
      std::sqrt(static_cast<double>(context.steps.steady.size()) /
                static_cast<double>(
                    std::max<size_t>(context.replayed.steps.steady.size(), 1)));
  if (context.steps.thread != kNone) {
    digest.step_shapes = StepShapes(context);
  }
  return digest;
}

}  // namespace stepscope
