#include "chrome/reader/chrome_device_fields_reader.h"

#include <string>

#include "chrome/reader/chrome_row_fields.h"
#include "rows/field_values.h"

namespace stepscope {
namespace {

void Take(const ChromeEvent& event, ArgKey key, float* value) {
  if (const auto number = ToReal(event.arg(key)))
    *value = static_cast<float>(*number);
}

// Returns the memory that a letter of "HtoD" (Intel: "M2D") stands for. The
// letters do not say whether host memory was pinned. P is a peer device, S is
// Intel's shared memory.
MemoryKind SideOf(char letter) {
  if (letter == 'H' || letter == 'M') return MemoryKind::kHost;
  if (letter == 'D' || letter == 'P') return MemoryKind::kDevice;
  if (letter == 'S') return MemoryKind::kManaged;
  return MemoryKind::kUnknown;
}

// Sets the sides that are unknown from the letters around the first "to" or "2"
// that has known letters on both sides.
void ReadLetters(std::string_view text, Copy* copy) {
  for (size_t at = 1; at < text.size(); ++at) {
    const size_t length = text[at] == '2'                     ? 1
                          : text.substr(at).starts_with("to") ? 2
                                                              : 0;
    if (length == 0 || at + length >= text.size()) continue;
    const MemoryKind from = SideOf(text[at - 1]);
    const MemoryKind to = SideOf(text[at + length]);
    if (from == MemoryKind::kUnknown || to == MemoryKind::kUnknown) continue;
    if (copy->source == MemoryKind::kUnknown) copy->source = from;
    if (copy->destination == MemoryKind::kUnknown) copy->destination = to;
    return;
  }
}

// Kineto writes "Memcpy HtoD (Pinned -> Device)", ROCm "CopyHostToDevice".
// Others write only the letters.
void ReadSides(std::string_view name, Copy* copy) {
  const size_t open = name.find('(');
  const size_t arrow = name.find(" -> ");
  const size_t close = name.rfind(')');
  if (open < arrow && arrow < close && close != std::string_view::npos) {
    copy->source = MemoryKindOf(name.substr(open + 1, arrow - open - 1));
    copy->destination = MemoryKindOf(name.substr(arrow + 4, close - arrow - 4));
    name = name.substr(0, open);
  }
  if (name.find("HostToDevice") != std::string_view::npos) name = "HtoD";
  if (name.find("DeviceToHost") != std::string_view::npos) name = "DtoH";
  if (name.find("DeviceToDevice") != std::string_view::npos) name = "DtoD";
  ReadLetters(name, copy);
}

}  // namespace

// Files of 2021 have no args for the device and the stream: they draw a device
// as a process and a stream as a thread.
void ReadDeviceWork(const ChromeEvent& event, DeviceWork* work) {
  if (const auto pid = ToInteger(event.pid))
    work->device = static_cast<int32_t>(*pid);
  if (const auto tid = ToInteger(event.tid)) {
    work->stream = *tid;
  } else if (event.tid.text.starts_with("stream ")) {
    work->stream =
        ToInteger({event.tid.text.substr(7), Field::Type::kText}).value_or(0);
  }
  Take(event, ArgKey::kDevice, &work->device);
  Take(event, ArgKey::kStream, &work->stream);
  Take(event, ArgKey::kContext, &work->context);
  Take(event, ArgKey::kCorrelation, &work->correlation);
}

void ReadKernel(const ChromeEvent& event, Kernel* kernel) {
  if (event.has(ArgKey::kGrid))
    kernel->grid = ReadThree(event.arg(ArgKey::kGrid).text);
  if (event.has(ArgKey::kBlock))
    kernel->block = ReadThree(event.arg(ArgKey::kBlock).text);
  Take(event, ArgKey::kRegisters, &kernel->registers_per_thread);
  Take(event, ArgKey::kSharedMemory, &kernel->shared_memory_bytes);
  Take(event, ArgKey::kBlocksPerSm, &kernel->blocks_per_sm);
  Take(event, ArgKey::kWarpsPerSm, &kernel->warps_per_sm);
  // Kineto writes whole percent. Our own key, if present, has the exact
  // fraction and replaces it.
  if (const auto percent = ToReal(event.arg(ArgKey::kOccupancy)))
    kernel->occupancy_frac = static_cast<float>(*percent / 100);
  Take(event, ArgKey::kOurOccupancy, &kernel->occupancy_frac);
  Take(event, ArgKey::kGraph, &kernel->graph);
  Take(event, ArgKey::kGraphNode, &kernel->graph_node);
}

void ReadCopy(const ChromeEvent& event, std::string_view name, Copy* copy) {
  Take(event, ArgKey::kBytes, &copy->bytes);
  ReadSides(name, copy);
  if (copy->source == MemoryKind::kUnknown &&
      copy->destination == MemoryKind::kUnknown) {
    ReadSides(event.arg(ArgKey::kKind).text, copy);
  }
  // Our own keys are exact, so they replace what the name says.
  if (event.has(ArgKey::kOurSource))
    copy->source = MemoryKindOf(event.arg(ArgKey::kOurSource).text);
  if (event.has(ArgKey::kOurDestination))
    copy->destination = MemoryKindOf(event.arg(ArgKey::kOurDestination).text);
  if (const auto is_async = ToInteger(event.arg(ArgKey::kOurAsync)))
    copy->is_async = *is_async != 0;
}

}  // namespace stepscope
