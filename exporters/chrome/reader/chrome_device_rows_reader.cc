// The part of ChromeRowReader that reads the rows of devices and of the calls
// to them: runtime calls, kernels, copies, memsets, waits and driver memory.
#include "chrome/reader/chrome_device_fields_reader.h"
#include "chrome/reader/chrome_row_fields.h"
#include "chrome/reader/chrome_rows_reader.h"
#include "rows/field_values.h"

namespace stepscope {
namespace {

// CUPTI's stream number for "no stream"; "Context Sync" waits for all of them.
constexpr int64_t kNoStream = 0xFFFFFFFF;

// "cuLaunchKernel" is the driver's, "cudaLaunchKernel" the runtime's.
bool IsDriverName(std::string_view name) {
  return name.size() > 2 && name.starts_with("cu") && name[2] >= 'A' &&
         name[2] <= 'Z';
}

}  // namespace

// Calls and activities are linked later, by correlation, when all rows are
// there (TraceBuilder::Build).
void ChromeRowReader::AddCall(const ChromeEvent& event, const Times& times) {
  RuntimeCall call;
  call.begin_ns = times.begin_ns;
  call.end_ns = times.end_ns;
  call.name = NameOf(event);
  call.thread = ThreadOf(event);
  Take(event, ArgKey::kCorrelation, &call.correlation);
  Take(event, ArgKey::kOurReturnCode, &call.return_code);
  call.is_driver = event.category.text.ends_with("_driver") ||
                   event.has(ArgKey::kOurDriver) ||
                   (!is_ours_ && IsDriverName(event.name.text));
  seen_ |= Bit(Kind::kRuntimeCall);
  builder_->Add(call);
}

// Returns the program's name for the place where a graph kernel was captured.
// torch.cuda.mark_kernels() writes this name into the arg "name", which
// otherwise repeats the kernel's name.
NameId ChromeRowReader::CapturedModule(const ChromeEvent& event,
                                       const Kernel& kernel) {
  if (event.has(ArgKey::kOurDetail)) {
    return InternArg(event, ArgKey::kOurDetail);
  }
  const Field name = event.arg(ArgKey::kName);
  if (kernel.graph_node == 0 || name.type != Field::Type::kText ||
      name.text == event.name.text) {
    return 0;
  }
  return InternArg(event, ArgKey::kName);
}

void ChromeRowReader::AddKernel(const ChromeEvent& event, const Times& times) {
  Kernel kernel;
  kernel.begin_ns = times.begin_ns;
  kernel.end_ns = times.end_ns;
  kernel.name = NameOf(event);
  ReadDeviceWork(event, &kernel);
  ReadKernel(event, &kernel);
  kernel.captured_ops = inputs_.CallStack(event);
  kernel.captured_module = CapturedModule(event, kernel);
  // Like ts, these times count from the base time. -1 means "not recorded".
  const auto moment = [&](ArgKey key, int64_t* time_ns) {
    const auto since_base_ns = ToNanoseconds(event.arg(key));
    if (since_base_ns) *time_ns = base_ns_ + *since_base_ns;
  };
  moment(ArgKey::kOurQueued, &kernel.queued_ns);
  moment(ArgKey::kOurSubmitted, &kernel.submitted_ns);
  seen_ |= Bit(Kind::kKernel);
  builder_->Add(kernel);
  AwaitLink(event, &builder_->kernels().back());
}

void ChromeRowReader::AddCopy(const ChromeEvent& event, const Times& times) {
  Copy copy;
  copy.begin_ns = times.begin_ns;
  copy.end_ns = times.end_ns;
  copy.name = NameOf(event);
  ReadDeviceWork(event, &copy);
  ReadCopy(event, event.name.text, &copy);
  seen_ |= Bit(Kind::kCopy);
  builder_->Add(copy);
  AwaitLink(event, &builder_->copies().back());
}

void ChromeRowReader::AddMemset(const ChromeEvent& event, const Times& times) {
  Memset memset;
  memset.begin_ns = times.begin_ns;
  memset.end_ns = times.end_ns;
  memset.name = NameOf(event);
  ReadDeviceWork(event, &memset);
  Take(event, ArgKey::kBytes, &memset.bytes);
  seen_ |= Bit(Kind::kMemset);
  builder_->Add(memset);
  AwaitLink(event, &builder_->memsets().back());
}

void ChromeRowReader::AddSync(const ChromeEvent& event, const Times& times) {
  Sync sync;
  sync.begin_ns = times.begin_ns;
  sync.end_ns = times.end_ns;
  sync.name = NameOf(event);
  Take(event, ArgKey::kDevice, &sync.device);
  Take(event, ArgKey::kStream, &sync.stream);
  if (sync.stream == kNoStream) sync.stream = -1;
  Take(event, ArgKey::kCorrelation, &sync.correlation);
  Take(event, ArgKey::kWaitOnStream, &sync.wait_on_stream);
  Take(event, ArgKey::kWaitOnRecord, &sync.wait_on_record_correlation);
  seen_ |= Bit(Kind::kSync);
  builder_->Add(sync);
}

// Keeps the activity for LinkLater(). Its arrow, if there is one, is the next
// event in the file, so the next slice or arrow ends the wait.
void ChromeRowReader::AwaitLink(const ChromeEvent& event, DeviceWork* work) {
  if (is_ours_ || work->correlation >= 0) return;
  unlinked_ = work;
  unlinked_begin_ = event.begin.text;
}

void ChromeRowReader::AddDeviceMemory(const ChromeEvent& event) {
  DeviceMemory row;
  if (!ReadTime(ToNanoseconds(event.begin), &row.time_ns)) return;
  row.name = NameOf(event);
  row.kind = MemoryKindOf(event.arg(ArgKey::kOurSource).text);
  row.is_async = event.has(ArgKey::kOurAsync);
  Take(event, ArgKey::kDevice, &row.device);
  Take(event, ArgKey::kStream, &row.stream);
  Take(event, ArgKey::kCorrelation, &row.correlation);
  Take(event, ArgKey::kAddress, &row.address);
  Take(event, ArgKey::kMemoryBytes, &row.bytes);
  Take(event, ArgKey::kTotalAllocated, &row.pool_used_bytes);
  Take(event, ArgKey::kTotalReserved, &row.pool_bytes);
  earliest_ns_ = std::min(earliest_ns_, row.time_ns);
  latest_ns_ = std::max(latest_ns_, row.time_ns);
  seen_ |= Bit(Kind::kDeviceMemory);
  ++counts_.rows;
  builder_->Add(row);
}

}  // namespace stepscope
