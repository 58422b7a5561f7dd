// The fields of a RankDigest with the numbers of proto/rank_digest.proto. The
// writer and the reader share this list, so they cannot disagree. A visitor is
// called with (field number, member) for each field of a message.
#pragma once

#include <stepscope/ranks.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace stepscope {

// `Self` is a T or a const T.
template <typename Self, typename T>
concept Is = std::same_as<std::remove_const_t<Self>, T>;

// True for types that a message stores as a whole number.
template <typename T>
concept DigestNumber = std::is_integral_v<T> || std::is_enum_v<T>;

// The columns of the collectives of one rank.
struct CollectiveColumns {
  std::vector<uint64_t> groups;
  std::vector<bool> ends_together;
  std::vector<uint32_t> group;
  std::vector<int64_t> step;
  std::vector<int64_t> ordinal;
  std::vector<int64_t> kernel;
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> duration_ns;
  std::vector<int64_t> covered_ns;
  std::vector<int64_t> bytes;
  std::vector<int64_t> queued_ns;
  std::vector<int64_t> stalled_ns;
};

// A RankDigest, with its collectives as columns.
struct DigestMessage {
  Report report;
  CollectiveColumns collectives;
  std::vector<GroupTraffic> groups;
  std::vector<std::pair<int64_t, uint64_t>> step_shapes;
  double host_ms = 0;
  double noise_ms = 0;
  double host_noise_ms = 0;
  double sm_clock_mhz = 0;
  double kernels = 0;
  int64_t only_step_begin_ns = 0;
};

// The outermost message.
struct DigestEnvelope {
  uint32_t magic = 0;
  uint32_t version = 0;
  std::string producer;
  uint64_t hash = 0;
  std::string rank;
};

template <typename Visitor, Is<DigestEnvelope> Self>
void Visit(Visitor& field, Self& of) {
  field.Fixed32(1, of.magic);
  field(2, of.version);
  field(3, of.producer);
  field.Fixed64(4, of.hash);
  field(5, of.rank);
}

template <typename Visitor, Is<CollectiveColumns> Self>
void Visit(Visitor& field, Self& of) {
  field.Fixed64s(1, of.groups);
  field(2, of.ends_together);
  field(3, of.group);
  field.Signed(4, of.step);
  field.Signed(5, of.ordinal);
  field.Signed(6, of.kernel);
  field.Signed(7, of.begin_ns);
  field.Signed(8, of.duration_ns);
  field.Signed(9, of.covered_ns);
  field.Signed(10, of.bytes);
  field.Signed(11, of.queued_ns);
  field.Signed(12, of.stalled_ns);
}

template <typename Visitor, Is<GroupTraffic> Self>
void Visit(Visitor& field, Self& of) {
  field.Fixed64(1, of.group);
  field(2, of.name);
  field(3, of.description);
  field(4, of.members);
  field(5, of.size);
  field(6, of.kind);
  field(7, of.is_integer);
  field(8, of.shards);
  field(9, of.bus_factor);
  field(10, of.count);
  field(11, of.gradients);
  field(12, of.sent);
  field(13, of.received);
}

template <typename Visitor, Is<Device> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.ordinal);
  field(2, of.name);
  field(3, of.vendor);
  field(4, of.memory_bytes);
  field(5, of.compute_major);
  field(6, of.compute_minor);
  field(7, of.sm_count);
  field(8, of.max_threads_per_sm);
  field(9, of.warp_size);
  field(10, of.regs_per_sm);
  field(11, of.shared_memory_per_sm_bytes);
  field(12, of.clock_khz);
  field(13, of.memory_bandwidth_bytes_per_s);
}

// Leaves out the times of the wait steps, which only the rank's own rules read.
template <typename Visitor, Is<RunInfo> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.name);
  field(2, of.host);
  field(3, of.pid);
  field(4, of.rank);
  field(5, of.world_size);
  field(6, of.backend);
  field(7, of.run_id);
  field(8, of.cycle);
  field(9, of.producer);
  field(10, of.source);
  field(11, of.window_begin_ns);
  field(12, of.window_end_ns);
  field(13, of.devices);
  field(14, of.cpu_model);
  field(15, of.usable_cores);
  field(16, of.local_ranks);
  field(17, of.training_thread);
  field(18, of.torch_version);
  field(19, of.cuda_version);
  field(20, of.record_shapes);
  field(21, of.profile_memory);
  field(22, of.with_stack);
  field(23, of.op_cost_ns);
  field(24, of.clock_error_ns);
  field(25, of.language);
}

template <typename Visitor, Is<StepStats> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.count);
  field(2, of.steady);
  field(3, of.mean_ms);
  field(4, of.median_ms);
  field(5, of.cov);
  field(6, of.step_source);
  field(7, of.all_mean_ms);
  field(8, of.unprofiled_ms);
  field(9, of.cost_estimated);
  field(10, of.smallest_gain_ms);
}

template <typename Visitor, Is<StepTimes> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.number);
  field(2, of.kind);
  field(3, of.ms);
  field(4, of.why);
  field(5, of.time_split_ms);
}

template <typename Visitor, Is<Spread> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.least);
  field(2, of.most);
}

template <typename Visitor, Is<ReplayCheck> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.steps);
  field(2, of.no_edit_error);
  field(3, of.limit_error);
  field(4, of.valid);
  field(5, of.why_not);
}

template <typename Visitor, Is<Gain> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.expected_ms);
  field(2, of.low_ms);
  field(3, of.high_ms);
  field(4, of.pairs);
}

template <typename Visitor, Is<Example> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.step);
  field(2, of.begin_ns);
  field(3, of.end_ns);
  field(4, of.what);
}

template <typename Visitor, Is<Setting> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.key);
  field.OneOf(2, of.value);  // fields 2 to 5, one per type
}

template <typename Visitor, Is<Finding> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.id);
  field(2, of.status);
  field(3, of.severity);
  field(4, of.confidence);
  field(5, of.gain_kind);
  field(6, of.gain);
  field(7, of.baseline_ms);
  field(8, of.speedup);
  field(9, of.evidence);
  field(10, of.examples);
  field(11, of.where);
  field(12, of.assumption);
  field(13, of.fix_cpp);
  field(14, of.fix_python);
  field(15, of.settings);
  field(16, of.wrong_if);
  field(17, of.reference);
  field(18, of.collectives_frac);
  field(19, of.also);
}

template <typename Visitor, Is<SkippedRule> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.id);
  field(2, of.why);
  field(3, of.elsewhere);
}

template <typename Visitor, Is<Loss> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.name);
  field(2, of.detail);
  field(3, of.count);
  field(4, of.severity);
}

template <typename Visitor, Is<Plan> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.ids);
  field(2, of.at_most);
  field(3, of.order);
  field(4, of.changes);
  field(5, of.settings);
  field(6, of.step_before_ms);
  field(7, of.step_after_ms);
  field(8, of.after_each_ms);
  field(9, of.low_ms);
  field(10, of.high_ms);
  field(11, of.pairs);
  field(12, of.assumption);
}

template <typename Visitor, Is<CauseAnswer> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.cause);
  field(2, of.ms);
  field(3, of.path_ms);
  field(4, of.ids);
  field(5, of.looked);
  field(6, of.why);
}

template <typename Visitor, Is<TopOp> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.name);
  field(2, of.other_thread);
  field(3, of.self_ms_per_step);
  field(4, of.total_ms_per_step);
  field(5, of.gpu_self_ms_per_step);
  field(6, of.calls_per_step);
  field(7, of.is_collective);
}

template <typename Visitor, Is<PlaceTime> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.name);
  field(2, of.class_name);
  field(3, of.self_ms_per_step);
  field(4, of.total_ms_per_step);
  field(5, of.gpu_self_ms_per_step);
  field(6, of.gpu_total_ms_per_step);
  field(7, of.calls_per_step);
}

// Leaves out the critical path, memory peaks and the whole run, which a report
// of all ranks does not use.
template <typename Visitor, Is<Report> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.run);
  field(2, of.has_gpu);
  field(3, of.accelerator);
  field(4, of.devices_used);
  field(5, of.steps);
  field(6, of.time_split_ms);
  field(7, of.time_split_spread_ms);
  field(8, of.path_split_ms);
  field(9, of.phases_ms);
  field(10, of.recording_ms);
  field(11, of.recording_split_ms);
  field(12, of.step_times);
  field(13, of.replay);
  field(14, of.findings);
  field(15, of.clean);
  field(16, of.skipped);
  field(17, of.losses);
  field(18, of.plan);
  field(19, of.coverage);
  field(20, of.top_ops);
  field(21, of.modules);
  field(22, of.lines);
  field(23, of.superseded);
}

// An entry of a map or of a list of pairs.
template <typename Visitor, typename Self>
requires requires(Self& of) { of.first, of.second; }
void Visit(Visitor& field, Self& of) {
  field(1, of.first);
  field(2, of.second);
}

template <typename Visitor, Is<DigestMessage> Self>
void Visit(Visitor& field, Self& of) {
  field(1, of.report);
  field(2, of.collectives);
  field(3, of.step_shapes);
  field(4, of.host_ms);
  field(5, of.noise_ms);
  field(6, of.host_noise_ms);
  field(7, of.groups);
  field(8, of.sm_clock_mhz);
  field(9, of.kernels);
  field(10, of.only_step_begin_ns);
}

}  // namespace stepscope
