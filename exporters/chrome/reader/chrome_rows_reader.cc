#include "chrome/reader/chrome_rows_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "rows/field_values.h"

namespace stepscope {
namespace {

// The most bytes of a name that a message shows.
constexpr size_t kMostShownBytes = 100;

enum class Category : uint8_t {
  kOp,
  kAnnotation,
  kPython,
  kCall,
  kDriverCall,
  kKernel,
  kCopy,
  kMemset,
  kSync,
  kOverhead,
  kMemory,
  kWindow,
  kNoRow,  // known, but a Trace has no row for it
  kUnknown,
};

struct CategoryName {
  std::string_view text;
  Category category;
};

// Kineto's categories since 2021, and TensorBoard's spellings. The list is
// searched from the start, so the most frequent categories come first.
constexpr CategoryName kCategories[] = {
    {"python_function", Category::kPython},
    {"cpu_op", Category::kOp},
    {"cuda_runtime", Category::kCall},
    {"kernel", Category::kKernel},
    {"cpu_instant_event", Category::kMemory},
    {"gpu_memcpy", Category::kCopy},
    {"gpu_memset", Category::kMemset},
    {"cuda_driver", Category::kDriverCall},
    {"user_annotation", Category::kAnnotation},
    {"Operator", Category::kOp},
    {"Runtime", Category::kCall},
    {"Kernel", Category::kKernel},
    {"Memcpy", Category::kCopy},
    {"Memset", Category::kMemset},
    {"cuda_sync", Category::kSync},
    {"overhead", Category::kOverhead},
    {"Trace", Category::kWindow},
    {"gpu_user_annotation", Category::kNoRow},
    {"cuda_event", Category::kNoRow},
    {"stepscope", Category::kNoRow},
    {"operator", Category::kOp},
    {"runtime", Category::kCall},
    {"hip_runtime", Category::kCall},
    // Devices of other vendors, which use the categories above as well.
    {"xpu_runtime", Category::kCall},
    {"xpu_driver", Category::kDriverCall},
    {"xpu_sync", Category::kNoRow},
    {"privateuse1_runtime", Category::kCall},
    {"privateuse1_driver", Category::kDriverCall},
    {"mtia_runtime", Category::kCall},
    {"mlu_runtime", Category::kCall},
    {"gcu_runtime", Category::kCall},
    {"memcpy", Category::kCopy},
    {"memset", Category::kMemset},
};

// torch.autograd.profiler without Kineto writes no categories; the name of the
// process says what the event is.
Category WithoutCategory(const ChromeEvent& event) {
  if (event.pid.text == "CPU functions") return Category::kOp;
  if (event.pid.text == "CUDA functions") return Category::kKernel;
  return Category::kUnknown;
}

// Devices of other vendors, known by the start of an event's category.
struct Accelerator {
  std::string_view category, name, vendor;
};
constexpr Accelerator kAccelerators[] = {
    {"mtia_", "MTIA", "Meta"},
    {"xpu_", "XPU", "Intel"},
    {"hpu_", "HPU", "Habana"},
    {"mlu_", "MLU", "Cambricon"},
    {"gcu_", "GCU", "Enflame"},
    {"npu_", "NPU", "Huawei"},
    {"privateuse1_", "PrivateUse1 device", "unknown"},
    {"glow_", "Glow accelerator", "unknown"},
};
constexpr Accelerator kAscend = {"", "Ascend NPU", "Huawei"};

const Accelerator* AcceleratorOf(std::string_view category) {
  for (const Accelerator& known : kAccelerators) {
    if (category.starts_with(known.category)) return &known;
  }
  return nullptr;
}

Category CategoryOf(std::string_view text) {
  for (const CategoryName& known : kCategories) {
    if (known.text == text) return known.category;
  }
  return Category::kUnknown;
}

}  // namespace

ChromeRowReader::ChromeRowReader(TraceBuilder* builder,
                                 const ChromeHeader& header)
    : builder_(builder),
      is_ours_(header.is_ours),
      base_ns_(header.base_ns),
      inputs_(builder) {
  // Threads are added before any event, so that their rows have the numbers
  // that `stepscope.thread` refers to.
  for (const OwnHeader::DrawnThread& from : header.threads) {
    const RowId row = builder_->ThreadRow(from.thread.pid, from.thread.tid);
    builder_->thread(row).torch_thread = from.thread.torch_thread;
    builder_->thread(row).name = builder_->Intern(from.name);
    threads_[{from.pid, from.tid}] = row;
  }
}

void ChromeRowReader::Add(const ChromeEvent& event) {
  ++counts_.events;
  const std::string_view phase = event.phase.text;
  if (phase == "X") {
    AddComplete(event);
  } else if (phase == "f") {
    LinkLater(event);
  } else if (phase == "i" || phase == "I") {
    if (event.name.text == "[memory]" && event.has(ArgKey::kMemoryBytes)) {
      AddMemory(event);
    } else if (is_ours_ && event.category.text == "stepscope_memory") {
      AddDeviceMemory(event);
    }
  } else if (phase == "M") {
    AddMetadata(event);
  } else if (phase == "B" || phase == "E") {
    ++counts_.unpaired;
  } else if (phase.empty()) {
    --counts_.events;
    ++counts_.bad_times;
  }
  // Other arrows only repeat correlation ids, for viewers.
}

// Until 2024 Kineto wrote no correlation on device activities of ROCm. But the
// arrow from the call follows the activity in the file, and its id is the
// call's correlation.
void ChromeRowReader::LinkLater(const ChromeEvent& event) {
  if (unlinked_ != nullptr && event.category.text == "ac2g" &&
      event.begin.text == unlinked_begin_) {
    unlinked_->correlation = ToInteger(event.id).value_or(-1);
  }
  unlinked_ = nullptr;
}

void ChromeRowReader::AddComplete(const ChromeEvent& event) {
  unlinked_ = nullptr;
  if (event.pid.text.starts_with("[")) NoteMergedRank(event.pid.text);
  Category category = CategoryOf(event.category.text);
  if (event.category.text.empty()) category = WithoutCategory(event);
  if (category == Category::kNoRow) return;
  if (category == Category::kUnknown) {
    // Ascend's device tasks have no category of their own, but an argument that
    // no other event has.
    const bool ascend = event.has(ArgKey::kTaskType);
    const Accelerator* of =
        ascend ? &kAscend : AcceleratorOf(event.category.text);
    counts_.device_tasks += of != nullptr;
    if (of != nullptr) NoteAccelerator(of->name, of->vendor);
    ++counts_.unknown_categories;
    if (counts_.unknown_example.empty())
      counts_.unknown_example =
          std::string(event.category.text.substr(0, kMostShownBytes));
    return;
  }
  Times times = {};
  if (!ReadTimes(event, &times)) return;
  switch (category) {
    case Category::kOp:
      return AddOp(event, times);
    case Category::kAnnotation:
      return AddAnnotation(event, times);
    case Category::kPython:
      return AddPythonFrame(event, times);
    case Category::kCall:
    case Category::kDriverCall:
      // Other vendors' kernels may have Kineto's category "kernel", so the
      // vendor is noted from the category of calls.
      if (const Accelerator* of = AcceleratorOf(event.category.text)) {
        NoteAccelerator(of->name, of->vendor);
      }
      return AddCall(event, times);
    case Category::kKernel:
      return AddKernel(event, times);
    case Category::kCopy:
      return AddCopy(event, times);
    case Category::kMemset:
      return AddMemset(event, times);
    case Category::kSync:
      return AddSync(event, times);
    case Category::kOverhead:
      return AddOverhead(event, times);
    default:
      return;
  }
}

void ChromeRowReader::NoteAccelerator(std::string_view name,
                                      std::string_view vendor) {
  counts_.accelerator.name = name;
  counts_.accelerator.vendor = vendor;
}

// SGLang's merger writes "[TP00] 123" for process 123 of a rank.
void ChromeRowReader::NoteMergedRank(std::string_view pid) {
  const size_t end = pid.find(']');
  if (end == std::string_view::npos) return;
  const std::string_view rank = pid.substr(0, end + 1);
  if (merged_rank_.empty()) merged_rank_ = rank;
  if (merged_rank_ != rank) counts_.merged_ranks = 1;
}

bool ChromeRowReader::ReadTime(std::optional<int64_t> since_base_ns,
                               int64_t* time_ns) {
  // Both are at most kLargestNs, so the sum does not overflow.
  *time_ns = base_ns_ + since_base_ns.value_or(0);
  const bool is_time =
      since_base_ns.has_value() && std::abs(*time_ns) <= kLargestNs;
  if (!is_time) ++counts_.bad_times;
  return is_time;
}

bool ChromeRowReader::ReadTimes(const ChromeEvent& event, Times* times) {
  if (!ReadTime(ToNanoseconds(event.begin), &times->begin_ns)) return false;
  if (event.duration.type == Field::Type::kNone) {
    ++counts_.no_duration;
    return false;
  }
  const auto duration = ToNanoseconds(event.duration);
  if (!duration) {
    ++counts_.bad_times;
    return false;
  }
  if (*duration < 0) {
    ++counts_.negative_durations;
    return false;
  }
  if (times->begin_ns > kLargestNs - *duration) {
    ++counts_.bad_times;
    return false;
  }
  times->end_ns = times->begin_ns + *duration;
  earliest_ns_ = std::min(earliest_ns_, times->begin_ns);
  latest_ns_ = std::max(latest_ns_, times->end_ns);
  ++counts_.rows;
  return true;
}

// Returns the number of a thread or process. Old files write the number as
// text, "25738" or "25738 (x)". Any other text gets a number of its own, from
// -2 down, because -1 is the process on which Kineto draws overheads.
int64_t ChromeRowReader::ThreadNumber(const Field& tid) {
  if (const auto number = ToInteger(tid)) return *number;
  int64_t number = 0;
  const char* end = tid.text.data() + tid.text.size();
  if (!tid.text.empty() && tid.text[0] >= '0' && tid.text[0] <= '9' &&
      std::from_chars(tid.text.data(), end, number).ec == std::errc()) {
    return number;
  }
  const auto [it, added] = text_threads_.try_emplace(
      std::string(tid.text), -2 - static_cast<int64_t>(text_threads_.size()));
  return it->second;
}

RowId ChromeRowReader::ThreadOf(const ChromeEvent& event) {
  if (is_ours_ && event.has(ArgKey::kOurThread)) {
    const int64_t row = ToInteger(event.arg(ArgKey::kOurThread)).value_or(-1);
    return row < 0 ? kNone : static_cast<RowId>(row);
  }
  const int64_t pid = ThreadNumber(event.pid);
  const int64_t tid = ThreadNumber(event.tid);
  // Most events are on the thread of the previous event.
  if (last_thread_ != kNone && pid == last_pid_ && tid == last_tid_)
    return last_thread_;
  const auto [it, added] = threads_.try_emplace({pid, tid}, kNone);
  if (added) it->second = builder_->ThreadRow(pid, tid);
  if (host_pid_ < 0) host_pid_ = pid;
  last_pid_ = pid;
  last_tid_ = tid;
  last_thread_ = it->second;
  return it->second;
}

NameId ChromeRowReader::NameOf(const ChromeEvent& event) {
  const Field field =
      event.has(ArgKey::kOurName) ? event.arg(ArgKey::kOurName) : event.name;
  return builder_->Intern(Unescape(field.text, &scratch_));
}

NameId ChromeRowReader::InternArg(const ChromeEvent& event, ArgKey key) {
  return builder_->Intern(Unescape(event.arg(key).text, &scratch_));
}

void ChromeRowReader::AddOverhead(const ChromeEvent& event,
                                  const Times& times) {
  Overhead row;
  row.begin_ns = times.begin_ns;
  row.end_ns = times.end_ns;
  row.name = NameOf(event);
  seen_ |= Bit(Kind::kOverhead);
  if (is_ours_ || ThreadNumber(event.pid) >= 0) {
    row.thread = ThreadOf(event);
    builder_->Add(row);
  } else {
    // Kineto draws overheads on process -1, but the tid is a host thread's. The
    // host's pid is known only at the end.
    overheads_.push_back({row, ThreadNumber(event.tid)});
  }
}

void ChromeRowReader::AddMetadata(const ChromeEvent& event) {
  if (is_ours_ || event.name.text != "thread_name") return;
  const std::string_view name =
      Unescape(event.arg(ArgKey::kName).text, &scratch_);
  if (!name.empty())
    thread_names_[{ThreadNumber(event.pid), ThreadNumber(event.tid)}] = name;
}

void ChromeRowReader::Finish(const ChromeHeader& header, int64_t shift_ns) {
  for (WaitingOverhead& waiting : overheads_) {
    waiting.row.thread = builder_->ThreadRow(host_pid_, waiting.tid);
    threads_.try_emplace({host_pid_, waiting.tid}, waiting.row.thread);
    builder_->Add(waiting.row);
  }
  overheads_.clear();
  AddUnnumberedSteps();
  // Ranges are used only without metadata, or collectives would count twice.
  if ((seen_ & Bit(Kind::kCommunication)) == 0) {
    for (const Communication& row : range_communications_) builder_->Add(row);
    if (!range_communications_.empty()) seen_ |= Bit(Kind::kCommunication);
  }
  range_communications_.clear();
  // Times of a damaged file may be too large to be shifted without overflow.
  if (latest_ns_ <= kLargestNs - shift_ns) builder_->ShiftTimes(shift_ns);
  if (is_ours_) {
    builder_->run() = header.run;
    for (Kind kind : header.watched) builder_->Watch(kind);
    for (const Loss& loss : header.losses) builder_->Add(loss);
    return;
  }
  for (const auto& [place, row] : threads_) {
    const auto name = thread_names_.find(place);
    if (name != thread_names_.end())
      builder_->thread(row).name = builder_->Intern(name->second);
  }
  builder_->run() = header.run;
  builder_->run().pid = host_pid_;
  if (!counts_.accelerator.name.empty() && header.run.devices.empty()) {
    builder_->run().devices.push_back(counts_.accelerator);
  }
  if (header.is_kineto) builder_->run().producer = "torch.profiler";
  Watch(header);
}

// A file of torch.profiler does not list the kinds that it recorded. They are
// taken to be the kinds with events and those that the header's flags name. The
// tables of a GPU go together, because CUPTI records calls, kernels, copies and
// memsets, or none of them.
void ChromeRowReader::Watch(const ChromeHeader& header) {
  RunInfo& run = builder_->run();
  const auto seen = [&](Kind kind) { return (seen_ & Bit(kind)) != 0; };
  const auto also = [&](bool watched, Kind kind) {
    if (watched) seen_ |= Bit(kind);
  };
  also(header.record_shapes && seen(Kind::kOp), Kind::kOpShapes);
  also(header.profile_memory && seen(Kind::kOp), Kind::kMemory);
  also(header.with_stack && seen(Kind::kOp), Kind::kPythonFrame);
  also(seen(Kind::kOp), Kind::kRange);
  const bool gpu = seen(Kind::kRuntimeCall) || seen(Kind::kKernel) ||
                   seen(Kind::kCopy) || seen(Kind::kMemset);
  for (Kind kind :
       {Kind::kRuntimeCall, Kind::kKernel, Kind::kCopy, Kind::kMemset}) {
    also(gpu, kind);
  }
  run.record_shapes = seen(Kind::kOpShapes);
  run.profile_memory = seen(Kind::kMemory);
  run.with_stack = seen(Kind::kPythonFrame) || seen(Kind::kOpStacks);
  for (int kind = 0; kind < static_cast<int>(Kind::kCount); ++kind) {
    if (seen(static_cast<Kind>(kind))) builder_->Watch(static_cast<Kind>(kind));
  }
}

}  // namespace stepscope
