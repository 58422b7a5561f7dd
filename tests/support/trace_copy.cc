#include "support/trace_copy.h"

#include <functional>
#include <utility>
#include <vector>

namespace stepscope {

void AddAll(const Trace& trace, TraceBuilder& builder) {
  const auto rename = [&](NameId id) { return builder.Intern(trace.name(id)); };
  std::vector<RowId> threads;
  for (const Thread& thread : trace.threads()) {
    threads.push_back(builder.ThreadRow(thread.pid, thread.tid));
    builder.thread(threads.back()).name = rename(thread.name);
    builder.thread(threads.back()).torch_thread = thread.torch_thread;
  }
  const auto thread_row = [&](RowId row) {
    return row == kNone ? kNone : threads[row];
  };
  const std::function<void(Argument&)> rename_argument =
      [&](Argument& argument) {
        argument.type = rename(argument.type);
        argument.concrete = rename(argument.concrete);
        for (Argument& element : argument.elements) rename_argument(element);
      };

  const auto copy_stack = [&](RowId row) {
    if (row == kNone) return kNone;
    Stack stack = trace.stacks()[row];
    for (NameId& frame : stack.frames) frame = rename(frame);
    return builder.InternStack(std::move(stack));
  };

  builder.run() = trace.run();
  builder.run().training_thread = thread_row(trace.run().training_thread);
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (trace.watched(static_cast<Kind>(kind)))
      builder.Watch(static_cast<Kind>(kind));
  }
  for (Step row : trace.steps()) {
    row.thread = thread_row(row.thread);
    builder.Add(row);
  }
  for (Range row : trace.ranges()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    row.detail = rename(row.detail);
    builder.Add(row);
  }
  for (Op row : trace.ops()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    if (row.inputs != kNone) {
      OpInputs inputs = trace.op_inputs()[row.inputs];
      for (Argument& argument : inputs.arguments) rename_argument(argument);
      row.inputs = builder.InternInputs(std::move(inputs));
    }
    row.stack = copy_stack(row.stack);
    row.code = copy_stack(row.code);
    row.parent = row.forward = kNone;
    builder.Add(row);
  }
  for (RuntimeCall row : trace.runtime_calls()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    row.op = kNone;
    builder.Add(row);
  }
  const auto unlink = [](DeviceWork& work) { work.call = work.op = kNone; };
  for (Kernel row : trace.kernels()) {
    row.name = rename(row.name);
    row.captured_module = rename(row.captured_module);
    row.captured_ops = copy_stack(row.captured_ops);
    row.communication = kNone;
    unlink(row);
    builder.Add(row);
  }
  for (Copy row : trace.copies()) {
    row.name = rename(row.name);
    unlink(row);
    builder.Add(row);
  }
  for (Memset row : trace.memsets()) {
    row.name = rename(row.name);
    unlink(row);
    builder.Add(row);
  }
  for (Sync row : trace.syncs()) {
    row.name = rename(row.name);
    row.call = kNone;
    builder.Add(row);
  }
  for (Overhead row : trace.overheads()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    builder.Add(row);
  }
  for (PythonFrame row : trace.python_frames()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    builder.Add(row);
  }
  for (Allocation row : trace.allocations()) {
    row.thread = thread_row(row.thread);
    row.op = row.other = kNone;
    builder.Add(row);
  }
  for (Communication row : trace.communications()) {
    row.thread = thread_row(row.thread);
    row.name = rename(row.name);
    row.dtype = rename(row.dtype);
    row.group_name = rename(row.group_name);
    row.group_description = rename(row.group_description);
    row.group_ranks = rename(row.group_ranks);
    row.op = kNone;
    builder.Add(row);
  }
  for (Settings row : trace.settings()) {
    row.autocast_dtype = rename(row.autocast_dtype);
    row.matmul_precision = rename(row.matmul_precision);
    builder.Add(row);
  }
  for (const HostUsage& row : trace.host_usage()) builder.Add(row);
  for (Loader row : trace.loaders()) {
    row.name = rename(row.name);
    row.kind = rename(row.kind);
    builder.Add(row);
  }
  for (Stream row : trace.streams()) {
    row.name = rename(row.name);
    builder.Add(row);
  }
  for (DeviceMemory row : trace.device_memory()) {
    row.name = rename(row.name);
    builder.Add(row);
  }
  for (const DeviceSample& row : trace.device_samples()) builder.Add(row);
  for (const Loss& loss : trace.losses()) builder.Add(loss);
}

}  // namespace stepscope
