#include <stepscope/row_times.h>
#include <stepscope/trace_builder.h>

#include <algorithm>

#include "measure.h"

namespace stepscope::bench {
namespace {

constexpr int64_t kStartNs = 1'763'700'000'000'000'000;

// Moves the rows of one recording to their place in the k-th copy.
class Copier {
 public:
  Copier(const Trace& trace, TraceBuilder* builder)
      : trace_(trace), builder_(*builder) {
    // Names are added in the order of their IDs, so that IDs do not change.
    for (NameId id = 0; id < trace.name_count(); ++id)
      builder_.Intern(trace.name(id));
    for (const Thread& thread : trace.threads()) {
      builder_.thread(builder_.ThreadRow(thread.pid, thread.tid)) = thread;
    }
    for (const OpInputs& inputs : trace.op_inputs())
      builder_.InternInputs(inputs);
    for (const Stack& stack : trace.stacks()) builder_.InternStack(stack);
    FindStride();
  }

  void Add(int64_t index) {
    shift_ns_ = index * period_ns_;
    const auto moved = [&](auto row) {
      if constexpr (requires { row.time_ns; }) {
        row.time_ns += shift_ns_;
      } else {
        row.begin_ns += shift_ns_;
        row.end_ns += shift_ns_;
      }
      if constexpr (requires { row.correlation; }) {
        if (row.correlation >= 0) row.correlation += index * correlations_;
      }
      return row;
    };
    for (Step row : trace_.steps()) {
      row.number += index * steps_;
      builder_.Add(moved(row));
    }
    for (Op row : trace_.ops()) {
      if (row.sequence >= 0) row.sequence += index * sequences_;
      row.parent = row.forward = kNone;
      builder_.Add(moved(row));
    }
    for (Kernel row : trace_.kernels()) {
      row.communication = kNone;
      builder_.Add(moved(row));
    }
    for (Allocation row : trace_.allocations()) {
      row.other = kNone;
      builder_.Add(moved(row));
    }
    const auto all = [&](const auto& rows) {
      for (const auto& row : rows) builder_.Add(moved(row));
    };
    all(trace_.ranges());
    all(trace_.runtime_calls());
    all(trace_.copies());
    all(trace_.memsets());
    all(trace_.syncs());
    all(trace_.overheads());
    all(trace_.python_frames());
    all(trace_.communications());
    all(trace_.device_memory());
    all(trace_.device_samples());
  }

 private:
  void FindStride() {
    int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
    const auto see = [&](const auto& rows) {
      for (const auto& row : rows) {
        begin_ns = std::min(begin_ns, BeginOf(row));
        end_ns = std::max(end_ns, EndOf(row));
        if constexpr (requires { row.correlation; })
          correlations_ = std::max(correlations_, row.correlation + 1);
      }
    };
    see(trace_.steps());
    see(trace_.ranges());
    see(trace_.ops());
    see(trace_.runtime_calls());
    see(trace_.kernels());
    see(trace_.copies());
    see(trace_.memsets());
    for (const Op& op : trace_.ops())
      sequences_ = std::max(sequences_, op.sequence + 1);
    for (const Step& step : trace_.steps())
      steps_ = std::max(steps_, step.number + 1);
    period_ns_ = end_ns - begin_ns;
  }

  const Trace& trace_;
  TraceBuilder& builder_;
  int64_t shift_ns_ = 0;
  int64_t period_ns_ = 0;
  int64_t correlations_ = 0;
  int64_t sequences_ = 0;
  int64_t steps_ = 0;
};

}  // namespace

Trace Lengthened(const Trace& trace, int64_t events) {
  TraceBuilder builder;
  Copier copier(trace, &builder);
  builder.run() = trace.run();
  builder.run().window_begin_ns = builder.run().window_end_ns = 0;
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (trace.watched(static_cast<Kind>(kind)))
      builder.Watch(static_cast<Kind>(kind));
  }
  const int64_t times =
      std::max<int64_t>(1, events / std::max<int64_t>(EventsOf(trace), 1));
  for (int64_t index = 0; index < times; ++index) copier.Add(index);
  return builder.Build();
}

Trace MadeUp(int64_t events) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(100, 100);
  std::vector<NameId> names;
  for (int i = 0; i < 200; ++i)
    names.push_back(builder.Intern("aten::operator_" + std::to_string(i)));
  const NameId launch = builder.Intern("cudaLaunchKernel");
  std::vector<NameId> kernels;
  for (int i = 0; i < 100; ++i) {
    kernels.push_back(builder.Intern(
        "void at::native::vectorized_elementwise_kernel<4, float, " +
        std::to_string(i) + ">(int, float, at::detail::Array<char*, 2>)"));
  }
  constexpr int64_t kPerGroup = 5;
  for (int64_t group = 0; group < events / kPerGroup; ++group) {
    const int64_t at = kStartNs + group * 10'000;
    const auto pick = static_cast<size_t>(group);
    for (int depth = 0; depth < 3; ++depth) {
      Op op;
      op.begin_ns = at + depth * 100;
      op.end_ns = at + 9'000 - depth * 100;
      op.name = names[(pick + static_cast<size_t>(depth)) % names.size()];
      op.thread = thread;
      op.sequence = depth == 0 ? group : -1;
      builder.Add(op);
    }
    RuntimeCall call;
    call.begin_ns = at + 1'000;
    call.end_ns = at + 5'000;
    call.correlation = group + 1;
    call.name = launch;
    call.thread = thread;
    builder.Add(call);
    Kernel kernel;
    kernel.begin_ns = at + 6'000;
    kernel.end_ns = at + 15'000;
    kernel.correlation = group + 1;
    kernel.stream = 7;
    kernel.name = kernels[pick % kernels.size()];
    kernel.grid = {static_cast<int32_t>(group % 512 + 1), 1, 1};
    kernel.block = {128, 1, 1};
    kernel.registers_per_thread = 32;
    builder.Add(kernel);
  }
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind)
    builder.Watch(static_cast<Kind>(kind));
  return builder.Build();
}

}  // namespace stepscope::bench
