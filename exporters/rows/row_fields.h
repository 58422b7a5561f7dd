// VisitFields<Row>(visitor): calls the visitor with each field of a kind of row
// and its name, for code that writes, reads, compares or generates rows field
// by field. The time of a row and the links that TraceBuilder resolves (parent,
// forward, op, call, other) are left out.
//
// A visitor has these members, each called with (const char* key, member
// pointer):
//   Number     an integer, a float or a bool
//   Numbers    a std::array or std::vector of integers
//   Name       a NameId
//   Thread     a RowId into threads()
//   Inputs     a RowId into op_inputs()
//   Stack      a RowId into stacks()
//   Text       a std::string
//   Choice     an enumeration; a third argument lists its texts in order
#pragma once

#include <stepscope/trace.h>

#include <concepts>
#include <span>
#include <string_view>

namespace stepscope {

using Texts = std::span<const std::string_view>;
inline constexpr std::string_view kOpKindTexts[] = {"operator", "backward"};
inline constexpr std::string_view kRangeKindTexts[] = {
    "user", "phase", "loader", "optimizer", "module", "collective", "nvtx"};
inline constexpr std::string_view kMemoryKindTexts[] = {
    "unknown", "pageable", "pinned", "device", "array", "managed", "host"};
inline constexpr std::string_view kSeverityTexts[] = {"note", "warning",
                                                      "error"};

template <std::same_as<Step> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Number("number", &R::number);
}

template <std::same_as<Range> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Choice("kind", &R::kind, Texts(kRangeKindTexts));
  v.Name("detail", &R::detail);
  v.Name("name", &R::name);
}

template <std::same_as<Op> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Choice("kind", &R::kind, Texts(kOpKindTexts));
  v.Number("sequence", &R::sequence);
  v.Number("forward_thread", &R::forward_thread);
  v.Inputs("inputs", &R::inputs);
  v.Stack("stack", &R::stack);
  v.Stack("code", &R::code);
  v.Name("name", &R::name);
}

template <std::same_as<RuntimeCall> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Number("correlation", &R::correlation);
  v.Number("return_code", &R::return_code);
  v.Number("is_driver", &R::is_driver);
  v.Name("name", &R::name);
}

template <typename R, typename V>
void VisitDeviceWork(V&& v) {
  v.Number("device", &R::device);
  v.Number("stream", &R::stream);
  v.Number("context", &R::context);
  v.Number("correlation", &R::correlation);
}

template <std::same_as<Kernel> R, typename V>
void VisitFields(V&& v) {
  VisitDeviceWork<R>(v);
  v.Numbers("grid", &R::grid);
  v.Numbers("block", &R::block);
  v.Number("registers_per_thread", &R::registers_per_thread);
  v.Number("shared_memory_bytes", &R::shared_memory_bytes);
  v.Number("blocks_per_sm", &R::blocks_per_sm);
  v.Number("warps_per_sm", &R::warps_per_sm);
  v.Number("occupancy_frac", &R::occupancy_frac);
  v.Number("graph", &R::graph);
  v.Number("graph_node", &R::graph_node);
  v.Stack("captured_ops", &R::captured_ops);
  v.Name("captured_module", &R::captured_module);
  v.Number("queued_ns", &R::queued_ns);
  v.Number("submitted_ns", &R::submitted_ns);
  v.Name("name", &R::name);
}

template <std::same_as<Copy> R, typename V>
void VisitFields(V&& v) {
  VisitDeviceWork<R>(v);
  v.Choice("source", &R::source, Texts(kMemoryKindTexts));
  v.Choice("destination", &R::destination, Texts(kMemoryKindTexts));
  v.Number("bytes", &R::bytes);
  v.Number("is_async", &R::is_async);
  v.Name("name", &R::name);
}

template <std::same_as<Memset> R, typename V>
void VisitFields(V&& v) {
  VisitDeviceWork<R>(v);
  v.Number("bytes", &R::bytes);
  v.Name("name", &R::name);
}

template <std::same_as<Sync> R, typename V>
void VisitFields(V&& v) {
  v.Number("device", &R::device);
  v.Number("stream", &R::stream);
  v.Number("correlation", &R::correlation);
  v.Number("wait_on_stream", &R::wait_on_stream);
  v.Number("wait_on_record_correlation", &R::wait_on_record_correlation);
  v.Name("name", &R::name);
}

template <std::same_as<Overhead> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Name("name", &R::name);
}

template <std::same_as<PythonFrame> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Number("python_id", &R::python_id);
  v.Number("python_parent_id", &R::python_parent_id);
  v.Number("module_id", &R::module_id);
  v.Name("name", &R::name);
}

template <std::same_as<Allocation> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Number("address", &R::address);
  v.Number("bytes", &R::bytes);
  v.Number("total_allocated_bytes", &R::total_allocated_bytes);
  v.Number("total_reserved_bytes", &R::total_reserved_bytes);
  v.Number("device_type", &R::device_type);
  v.Number("device", &R::device);
}

template <std::same_as<Communication> R, typename V>
void VisitFields(V&& v) {
  v.Thread("thread", &R::thread);
  v.Name("dtype", &R::dtype);
  v.Name("group_name", &R::group_name);
  v.Name("group_description", &R::group_description);
  v.Name("group_ranks", &R::group_ranks);
  v.Number("in_elements", &R::in_elements);
  v.Number("out_elements", &R::out_elements);
  v.Number("sequence", &R::sequence);
  v.Number("group_size", &R::group_size);
  v.Name("name", &R::name);
}

template <std::same_as<Settings> R, typename V>
void VisitFields(V&& v) {
  v.Number("step", &R::step);
  v.Number("grad_mode", &R::grad_mode);
  v.Number("inference_mode", &R::inference_mode);
  v.Number("autocast_cpu", &R::autocast_cpu);
  v.Number("autocast_cuda", &R::autocast_cuda);
  v.Number("cudnn_enabled", &R::cudnn_enabled);
  v.Number("cudnn_benchmark", &R::cudnn_benchmark);
  v.Number("deterministic", &R::deterministic);
  v.Number("tf32_cublas", &R::tf32_cublas);
  v.Number("tf32_cudnn", &R::tf32_cudnn);
  v.Number("anomaly_mode", &R::anomaly_mode);
  v.Number("intra_op_threads", &R::intra_op_threads);
  v.Number("inter_op_threads", &R::inter_op_threads);
  v.Name("autocast_dtype", &R::autocast_dtype);
  v.Name("matmul_precision", &R::matmul_precision);
}

template <std::same_as<HostUsage> R, typename V>
void VisitFields(V&& v) {
  v.Number("step", &R::step);
  v.Number("process_cpu_ns", &R::process_cpu_ns);
  v.Number("training_thread_cpu_ns", &R::training_thread_cpu_ns);
  v.Number("run_delay_ns", &R::run_delay_ns);
  v.Number("involuntary_switches", &R::involuntary_switches);
  v.Number("read_bytes", &R::read_bytes);
  v.Number("write_bytes", &R::write_bytes);
  v.Number("loader_cpu_ns", &R::loader_cpu_ns);
  v.Number("loader_read_bytes", &R::loader_read_bytes);
  v.Number("loader_workers", &R::loader_workers);
}

template <std::same_as<Loader> R, typename V>
void VisitFields(V&& v) {
  v.Name("kind", &R::kind);
  v.Number("workers", &R::workers);
  v.Number("batch_size", &R::batch_size);
  v.Number("pin_memory", &R::pin_memory);
  v.Number("persistent_workers", &R::persistent_workers);
  v.Number("prefetch_factor", &R::prefetch_factor);
  v.Name("name", &R::name);
}

template <std::same_as<Stream> R, typename V>
void VisitFields(V&& v) {
  v.Number("id", &R::id);
  v.Number("context", &R::context);
  v.Number("device", &R::device);
  v.Number("priority", &R::priority);
  v.Number("is_default", &R::is_default);
  v.Number("is_non_blocking", &R::is_non_blocking);
  v.Name("name", &R::name);
}

template <std::same_as<DeviceMemory> R, typename V>
void VisitFields(V&& v) {
  v.Number("device", &R::device);
  v.Number("stream", &R::stream);
  v.Number("correlation", &R::correlation);
  v.Choice("kind", &R::kind, Texts(kMemoryKindTexts));
  v.Number("is_async", &R::is_async);
  v.Number("address", &R::address);
  v.Number("bytes", &R::bytes);
  v.Number("pool_bytes", &R::pool_bytes);
  v.Number("pool_used_bytes", &R::pool_used_bytes);
  v.Name("name", &R::name);
}

template <std::same_as<DeviceSample> R, typename V>
void VisitFields(V&& v) {
  v.Number("step", &R::step);
  v.Number("device", &R::device);
  v.Number("sm_clock_mhz", &R::sm_clock_mhz);
  v.Number("memory_clock_mhz", &R::memory_clock_mhz);
  v.Number("throttle_reasons", &R::throttle_reasons);
  v.Number("temperature_c", &R::temperature_c);
  v.Number("power_mw", &R::power_mw);
  v.Number("power_limit_mw", &R::power_limit_mw);
  v.Number("fan_percent", &R::fan_percent);
  v.Number("pcie_sent_bytes_per_s", &R::pcie_sent_bytes_per_s);
  v.Number("pcie_received_bytes_per_s", &R::pcie_received_bytes_per_s);
  v.Number("nvlink_sent_bytes_per_s", &R::nvlink_sent_bytes_per_s);
  v.Number("nvlink_received_bytes_per_s", &R::nvlink_received_bytes_per_s);
  v.Number("counted_ns", &R::counted_ns);
  v.Number("sm_active_frac", &R::sm_active_frac);
  v.Number("tensor_active_frac", &R::tensor_active_frac);
  v.Number("dram_frac", &R::dram_frac);
  v.Number("free_bytes", &R::free_bytes);
  v.Number("total_bytes", &R::total_bytes);
  v.Number("allocated_bytes", &R::allocated_bytes);
  v.Number("reserved_bytes", &R::reserved_bytes);
  v.Number("inactive_split_bytes", &R::inactive_split_bytes);
  v.Number("segments", &R::segments);
  v.Number("segment_allocs", &R::segment_allocs);
  v.Number("segment_frees", &R::segment_frees);
  v.Number("alloc_retries", &R::alloc_retries);
  v.Number("out_of_memory", &R::out_of_memory);
}

template <std::same_as<Loss> R, typename V>
void VisitFields(V&& v) {
  v.Number("count", &R::count);
  v.Choice("severity", &R::severity, Texts(kSeverityTexts));
  v.Text("detail", &R::detail);
  v.Text("name", &R::name);
}

template <std::same_as<Device> R, typename V>
void VisitFields(V&& v) {
  v.Number("ordinal", &R::ordinal);
  v.Text("vendor", &R::vendor);
  v.Number("memory_bytes", &R::memory_bytes);
  v.Number("compute_major", &R::compute_major);
  v.Number("compute_minor", &R::compute_minor);
  v.Number("sm_count", &R::sm_count);
  v.Number("max_threads_per_sm", &R::max_threads_per_sm);
  v.Number("warp_size", &R::warp_size);
  v.Number("regs_per_sm", &R::regs_per_sm);
  v.Number("shared_memory_per_sm_bytes", &R::shared_memory_per_sm_bytes);
  v.Number("clock_khz", &R::clock_khz);
  v.Number("memory_bandwidth_bytes_per_s", &R::memory_bandwidth_bytes_per_s);
  v.Text("name", &R::name);
}

// `devices` and `source` are left out: devices are rows of their own, and
// `source` is the path from which this Trace was read.
template <std::same_as<RunInfo> R, typename V>
void VisitFields(V&& v) {
  v.Text("host", &R::host);
  v.Number("pid", &R::pid);
  v.Number("rank", &R::rank);
  v.Number("world_size", &R::world_size);
  v.Text("backend", &R::backend);
  v.Text("run_id", &R::run_id);
  v.Number("cycle", &R::cycle);
  v.Text("producer", &R::producer);
  v.Text("language", &R::language);
  v.Number("window_begin_ns", &R::window_begin_ns);
  v.Number("window_end_ns", &R::window_end_ns);
  v.Text("cpu_model", &R::cpu_model);
  v.Number("usable_cores", &R::usable_cores);
  v.Number("local_ranks", &R::local_ranks);
  v.Thread("training_thread", &R::training_thread);
  v.Text("torch_version", &R::torch_version);
  v.Text("cuda_version", &R::cuda_version);
  v.Number("record_shapes", &R::record_shapes);
  v.Number("profile_memory", &R::profile_memory);
  v.Number("with_stack", &R::with_stack);
  v.Numbers("wait_step_ns", &R::wait_step_ns);
  v.Number("op_cost_ns", &R::op_cost_ns);
  v.Number("clock_error_ns", &R::clock_error_ns);
  v.Text("name", &R::name);
}

}  // namespace stepscope
