#include "support/random_trace.h"

#include <stepscope/trace_builder.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "exporters/rows/row_fields.h"

namespace stepscope {
namespace {

constexpr int64_t kStartNs = 1'763'700'123'456'789'012;

class Maker {
 public:
  explicit Maker(const RandomTraceOptions& options)
      : options_(options), random_(options.seed) {}
  Trace Make();

 private:
  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  std::string Text();
  NameId Name(std::string_view usual);
  OpInputs Inputs();
  RowId RandomStack();
  Argument OneArgument(int depth);
  void Run();
  void Threads();
  void HostStep(int64_t number, int64_t begin_ns, int64_t end_ns);
  void DeviceStep(int64_t number, int64_t begin_ns, int64_t end_ns);
  void Ops(RowId thread, int64_t begin_ns, int64_t end_ns, int depth);
  void Launch(RowId thread, int64_t begin_ns, int64_t end_ns);
  void Memory(RowId thread, int64_t time_ns);
  template <typename Row>
  Row RandomFields();

  const RandomTraceOptions options_;
  std::mt19937_64 random_;
  TraceBuilder builder_;
  std::vector<RowId> threads_;
  int64_t sequence_ = 0;
  int64_t correlation_ = 100;
  uint64_t address_ = 0x7f0000000000;
  int64_t allocated_ = 0;
  std::vector<Allocation> live_;
  std::vector<int64_t> stream_free_ns_ = std::vector<int64_t>(4, kStartNs);
  std::vector<std::pair<int64_t, RowId>> forward_;  // sequence number, thread
};

// Visitor that fills a row's fields. About one field in five keeps its default.
template <typename Row>
struct FieldFiller {
  std::function<int64_t(int64_t, int64_t)> between;
  std::function<std::string()> text;
  TraceBuilder& builder;
  Row& row;

  bool Skip() { return between(1, 5) == 1; }
  template <typename M>
  void Number(const char*, M member) {
    using T = std::remove_reference_t<decltype(row.*member)>;
    if (Skip()) return;
    if constexpr (std::is_same_v<T, bool>) {
      row.*member = between(0, 1) == 1;
    } else if constexpr (sizeof(T) == 1) {
      row.*member = static_cast<T>(between(-1, 1));
    } else if constexpr (std::is_floating_point_v<T>) {
      row.*member = static_cast<T>(between(0, 1'000'000)) / 997;
    } else {
      row.*member = static_cast<T>(between(0, 2'000'000'000));
    }
  }
  template <typename M>
  void Numbers(const char*, M member) {
    if constexpr (requires { (row.*member).push_back(1); }) {
      for (int64_t n = between(0, 3); n > 0; --n)
        (row.*member).push_back(between(1, 1'000'000'000));
    }
  }
  template <typename M>
  void Name(const char*, M member) {
    if (!Skip()) row.*member = builder.Intern(text());
  }
  template <typename M>
  void Text(const char*, M member) {
    if (!Skip()) row.*member = text();
  }
  template <typename M>
  void Choice(const char*, M member, Texts texts) {
    row.*member = static_cast<std::remove_reference_t<decltype(row.*member)>>(
        between(0, static_cast<int64_t>(texts.size()) - 1));
  }
  template <typename M>
  void Thread(const char*, M) {}
  template <typename M>
  void Inputs(const char*, M) {}
  template <typename M>
  void Stack(const char*, M) {}
};

template <typename Row>
Row Maker::RandomFields() {
  Row row;
  VisitFields<Row>(FieldFiller<Row>{
      [this](int64_t low, int64_t high) { return Between(low, high); },
      [this] { return Text(); }, builder_, row});
  return row;
}

std::string Maker::Text() {
  if (!options_.hostile_names || !OneIn(4))
    return "text" + std::to_string(Between(0, 30));
  static const std::vector<std::string> kHostile = {
      "\"quoted\"",
      "back\\slash",
      "line\nbreak\ttab",
      std::string("nul\0byte", 8),
      "\x01\x1f\x7f",
      "h\u00e9llo \u4f60\u597d \U0001F525",
      "</script><b>bold</b> & ]}]",
      " blanks ",
      "a=b c=d",
      "\"rank\": 7",
      std::string(5000, 'x'),
      "ProfilerStep#x",
  };
  static const std::vector<std::string> kBad = {
      "\xff\xfe", "cut \xe4\xbd", "\xc0\xaf over", "\xed\xa0\x80 surrogate"};
  if (options_.bad_utf8 && OneIn(3)) return kBad[Between(0, 3)];
  return kHostile[Between(0, static_cast<int64_t>(kHostile.size()) - 1)];
}

NameId Maker::Name(std::string_view usual) {
  if (OneIn(10)) return builder_.Intern(Text());
  return builder_.Intern(std::string(usual) + std::to_string(Between(0, 9)));
}

Argument Maker::OneArgument(int depth) {
  static const std::vector<std::string> kTypes = {
      "float", "c10::Half", "long int", "Scalar", "", "unsigned char"};
  Argument argument;
  argument.type = builder_.Intern(kTypes[Between(0, 5)]);
  switch (Between(0, depth > 0 ? 3 : 2)) {
    case 0:
      for (int64_t n = Between(0, 4); n > 0; --n) {
        argument.dims.push_back(Between(0, 512));
        argument.strides.push_back(Between(0, 4096));
      }
      if (OneIn(2)) argument.strides.clear();
      break;
    case 1:
      argument.concrete = builder_.Intern(Text());
      break;
    case 3:
      argument.type = builder_.Intern("TensorList");
      for (int64_t n = Between(0, 3); n > 0; --n) {
        argument.elements.push_back(OneArgument(depth - 1));
        if (OneIn(2)) {  // the form that Kineto can write
          argument.elements.back() = Argument();
          argument.elements.back().dims = {Between(1, 9), Between(1, 9)};
        }
      }
      break;
    default:
      break;
  }
  return argument;
}

RowId Maker::RandomStack() {
  Stack stack;
  for (int64_t n = Between(0, 3); n > 0; --n) {
    stack.frames.push_back(builder_.Intern(
        OneIn(6) ? "odd;frame"
                 : "model.cc(" + std::to_string(n) + "): Forward"));
  }
  return builder_.InternStack(std::move(stack));
}

OpInputs Maker::Inputs() {
  OpInputs inputs;
  for (int64_t n = Between(0, 4); n > 0; --n)
    inputs.arguments.push_back(OneArgument(2));
  return inputs;
}

void Maker::Run() {
  RunInfo& run = builder_.run();
  run = RandomFields<RunInfo>();
  run.rank = options_.rank;
  run.world_size = options_.rank + 1;
  run.pid = 4242;
  run.cycle = 0;
  run.run_id = "2025_11_21_04_42_03";
  run.training_thread = threads_[0];
  run.window_begin_ns = kStartNs;
  run.window_end_ns = kStartNs + std::max(1, options_.steps) * 1'000'000;
  if (!options_.gpu) return;
  for (int32_t ordinal = 0; ordinal < 2; ++ordinal) {
    run.devices.push_back(RandomFields<Device>());
    run.devices.back().ordinal = ordinal;
  }
}

void Maker::Threads() {
  for (int i = 0; i < options_.threads; ++i) {
    const RowId row = builder_.ThreadRow(4242, 4242 + i * 3);
    builder_.thread(row).torch_thread = static_cast<uint64_t>(i) + 1;
    if (i != 1) builder_.thread(row).name = builder_.Intern(Text());
    threads_.push_back(row);
  }
}

void Maker::Memory(RowId thread, int64_t time_ns) {
  Allocation event;
  event.time_ns = time_ns;
  event.thread = thread;
  if (!live_.empty() && OneIn(2)) {
    event = live_.back();
    live_.pop_back();
    event.time_ns = time_ns;
    event.thread = thread;
    event.bytes = -event.bytes;
  } else {
    event.address = address_;
    address_ += 4096;
    event.bytes = Between(1, 1 << 20);
    event.device_type = options_.gpu && OneIn(2) ? 1 : 0;
    event.device = event.device_type == 1 ? 0 : -1;
    live_.push_back(event);
  }
  allocated_ += event.bytes;
  event.total_allocated_bytes = allocated_;
  event.total_reserved_bytes = OneIn(3) ? -1 : allocated_ + 4096;
  builder_.Add(event);
}

void Maker::Launch(RowId thread, int64_t begin_ns, int64_t end_ns) {
  RuntimeCall call;
  call.begin_ns = begin_ns;
  call.end_ns = end_ns;
  call.thread = thread;
  call.correlation = ++correlation_;
  call.is_driver = OneIn(4);
  call.name =
      builder_.Intern(call.is_driver ? "cuLaunchKernel" : "cudaLaunchKernel");
  if (OneIn(10)) call.return_code = static_cast<int32_t>(Between(1, 700));
  const int64_t stream = Between(1, 3);
  int64_t& free_ns = stream_free_ns_[stream];
  const auto place = [&](DeviceWork& work) {
    work.begin_ns = std::max(free_ns, end_ns) + Between(0, 100);
    // Now and then, a kernel starts before the previous one has ended.
    if (options_.crossing_ranges && OneIn(12) && free_ns > end_ns + 40)
      work.begin_ns = free_ns - 20;
    work.end_ns = work.begin_ns + Between(0, 900);
    free_ns = std::max(free_ns, work.end_ns);
    work.device = 0;
    work.stream = stream;
    work.context = 1;
    work.correlation = call.correlation;
  };
  switch (Between(0, 5)) {
    case 0: {
      auto copy = RandomFields<Copy>();
      place(copy);
      copy.name =
          OneIn(2) ? 0 : builder_.Intern("Memcpy HtoD (Pinned -> Device)");
      call.name = builder_.Intern("cudaMemcpyAsync");
      builder_.Add(copy);
      break;
    }
    case 1: {
      auto set = RandomFields<Memset>();
      place(set);
      set.name = OneIn(2) ? 0 : builder_.Intern("Memset (Device)");
      call.name = builder_.Intern("cudaMemsetAsync");
      builder_.Add(set);
      break;
    }
    case 2: {
      auto sync = RandomFields<Sync>();
      sync.begin_ns = begin_ns;
      sync.end_ns = end_ns;
      sync.correlation = call.correlation;
      sync.device = 0;
      sync.stream = stream;
      sync.name = builder_.Intern("Stream Sync");
      call.name = builder_.Intern("cudaStreamSynchronize");
      builder_.Add(sync);
      break;
    }
    default: {
      auto kernel = RandomFields<Kernel>();
      place(kernel);
      kernel.name = Name("void at::native::kernel<float>::s1688_");
      kernel.grid = {static_cast<int32_t>(Between(1, 999)), 1, 1};
      kernel.block = {128, 1, 1};
      if (OneIn(4)) kernel.captured_ops = RandomStack();
      kernel.occupancy_frac = static_cast<float>(Between(0, 997)) / 997;
      if (kernel.queued_ns != -1) kernel.queued_ns = begin_ns + Between(0, 999);
      if (kernel.submitted_ns != -1)
        kernel.submitted_ns = kernel.begin_ns - Between(0, 999);
      builder_.Add(kernel);
    }
  }
  builder_.Add(call);
}

void Maker::Ops(RowId thread, int64_t begin_ns, int64_t end_ns, int depth) {
  int64_t at = begin_ns;
  while (at + 200 < end_ns) {
    Op op;
    op.begin_ns = at + Between(0, 80);
    op.end_ns =
        std::min(end_ns, op.begin_ns + Between(0, (end_ns - begin_ns) / 2 + 1));
    at = op.end_ns + Between(0, 200);
    op.thread = thread;
    op.name = Name("aten::op");
    if (OneIn(3)) {
      op.sequence = ++sequence_;
      forward_.push_back({op.sequence, thread});
    } else if (!forward_.empty() && OneIn(4)) {
      op.kind = OpKind::kBackward;
      op.sequence = forward_.back().first;
      op.forward_thread = forward_.back().second + 1;
      op.name =
          builder_.Intern("autograd::engine::evaluate_function: OpBackward0");
      forward_.pop_back();
    } else if (OneIn(20)) {
      op.kind = OpKind::kBackward;
    }
    if (OneIn(2)) op.inputs = builder_.InternInputs(Inputs());
    if (OneIn(4)) op.stack = RandomStack();
    if (OneIn(6)) {
      op.code = builder_.InternStack(
          {.frames = {OneIn(3) ? 0 : builder_.Intern("/tmp/in\"ductor.py"),
                      builder_.Intern("XBLOCK=2")}});
    }
    builder_.Add(op);
    if (OneIn(5)) Memory(thread, Between(op.begin_ns, op.end_ns));
    if (depth > 0 && OneIn(2)) {
      Ops(thread, op.begin_ns, op.end_ns, depth - 1);
    } else if (options_.gpu && op.end_ns - op.begin_ns > 60 && OneIn(2)) {
      Launch(thread, op.begin_ns + 10, op.begin_ns + 50);
    }
    if (OneIn(30)) {
      auto row = RandomFields<Communication>();
      row.begin_ns = op.begin_ns;
      row.end_ns = op.end_ns;
      row.thread = thread;
      row.name = builder_.Intern("allreduce");
      builder_.Add(row);
    }
  }
}

// Adds the driver's samples of a device in one step.
void Maker::DeviceStep(int64_t number, int64_t begin_ns, int64_t end_ns) {
  auto sample = RandomFields<DeviceSample>();
  sample.time_ns = end_ns;
  sample.step = OneIn(3) ? -1 : number;
  builder_.Add(sample);
  static constexpr const char* kNames[] = {"alloc", "release", "pool created"};
  for (int64_t n = Between(0, 4); n > 0; --n) {
    auto row = RandomFields<DeviceMemory>();
    row.time_ns = Between(begin_ns, end_ns);
    row.name = builder_.Intern(kNames[Between(0, 2)]);
    row.device = static_cast<int32_t>(Between(0, 1));
    if (OneIn(2)) row.bytes = -row.bytes;
    if (OneIn(2)) row.address = ~row.address;  // uses all 64 bits
    builder_.Add(row);
  }
}

void Maker::HostStep(int64_t number, int64_t begin_ns, int64_t end_ns) {
  const int64_t length_ns = end_ns - begin_ns;
  if (options_.steps > 0) {
    Step step;
    step.begin_ns = begin_ns;
    step.end_ns = end_ns;
    step.number = number;
    step.thread = threads_[0];
    builder_.Add(step);
  }
  for (size_t i = 0; i < threads_.size(); ++i) {
    const int64_t piece_ns = length_ns / std::max(1, options_.ops_per_step / 8);
    for (int64_t at = begin_ns; at + piece_ns <= end_ns; at += piece_ns)
      Ops(threads_[i], at, at + piece_ns, 3);
  }
  const auto add_range = [&](RangeKind kind, const char* name, int64_t low,
                             int64_t high) {
    Range range;
    range.kind = kind;
    range.begin_ns = begin_ns + low;
    range.end_ns = begin_ns + high;
    range.thread = threads_[0];
    range.name = kind == RangeKind::kUser ? Name(name) : builder_.Intern(name);
    if (kind == RangeKind::kModule) range.detail = builder_.Intern("Conv2d");
    if (kind == RangeKind::kLoader) range.detail = builder_.Intern("train");
    builder_.Add(range);
  };
  add_range(RangeKind::kLoader,
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0,
            length_ns / 8);
  add_range(RangeKind::kPhase, "forward", length_ns / 8, length_ns / 2);
  add_range(RangeKind::kModule, "layer1", length_ns / 8 + 10, length_ns / 3);
  add_range(RangeKind::kModule, "layer1.0.conv1", length_ns / 8 + 20,
            length_ns / 4);
  add_range(RangeKind::kPhase, "backward", length_ns / 2, length_ns - 2000);
  add_range(RangeKind::kOptimizer, "Optimizer.step#SGD.step", length_ns - 2000,
            length_ns - 1000);
  add_range(RangeKind::kCollective, "nccl:all_reduce", length_ns - 900,
            length_ns - 800);
  add_range(RangeKind::kNvtx, "nvtx mark", length_ns - 700, length_ns - 600);
  for (int i = 0; i < 3 && options_.crossing_ranges; ++i) {
    const int64_t low = Between(0, length_ns - 1);
    add_range(RangeKind::kUser, "scope", low, Between(low, length_ns));
  }
  auto settings = RandomFields<Settings>();
  settings.step = number;
  settings.time_ns = begin_ns + 1;
  builder_.Add(settings);
  auto usage = RandomFields<HostUsage>();
  usage.step = number;
  usage.begin_ns = begin_ns;
  usage.end_ns = end_ns;
  builder_.Add(usage);
  Overhead overhead;
  overhead.begin_ns = begin_ns + Between(0, length_ns / 2);
  overhead.end_ns = overhead.begin_ns + Between(0, 500);
  overhead.name = builder_.Intern("Buffer Flush");
  overhead.thread = OneIn(2) ? kNone : threads_[0];
  builder_.Add(overhead);
  PythonFrame frame;
  frame.begin_ns = begin_ns + 5;
  frame.end_ns = end_ns - 5;
  frame.python_id = number + 1;
  frame.python_parent_id = OneIn(2) ? -1 : number;
  frame.module_id = OneIn(2) ? -1 : 3;
  frame.name = builder_.Intern("train.py(12): main");
  frame.thread = threads_[0];
  builder_.Add(frame);
}

Trace Maker::Make() {
  Threads();
  Run();
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind)
    if (!OneIn(4)) builder_.Watch(static_cast<Kind>(kind));
  for (int step = 0; step < std::max(1, options_.steps); ++step) {
    const int64_t begin_ns = kStartNs + step * int64_t{1'000'000};
    HostStep(step + 7, begin_ns, begin_ns + 1'000'000);
    if (options_.gpu) DeviceStep(step + 7, begin_ns, begin_ns + 1'000'000);
  }
  for (int64_t id = 1; id <= 3 && options_.gpu; ++id) {
    auto stream = RandomFields<Stream>();
    stream.id = id;
    stream.context = 1;
    builder_.Add(stream);
  }
  for (int i = 0; i < 2; ++i) builder_.Add(RandomFields<Loader>());
  for (int i = 0; i < 2; ++i) {
    auto loss = RandomFields<Loss>();
    loss.name = "made-up-loss-" + std::to_string(i);
    builder_.Add(loss);
  }
  return builder_.Build();
}

}  // namespace

Trace RandomTrace(const RandomTraceOptions& options) {
  return Maker(options).Make();
}

}  // namespace stepscope
