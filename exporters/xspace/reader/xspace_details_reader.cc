#include "xspace/reader/xspace_details_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "rows/field_values.h"

namespace stepscope {
namespace {

// True if `text` begins with `prefix`, ignoring case. `prefix` is lower case.
bool BeginsWith(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::ranges::equal(text.substr(0, prefix.size()), prefix, {},
                            [](char c) {
                              return static_cast<char>(
                                  std::tolower(static_cast<unsigned char>(c)));
                            });
}

// Calls `use` with each `key:value` of `details`; blanks or newlines separate
// them.
template <typename Use>
void ForEachPair(std::string_view details, Use use) {
  while (!details.empty()) {
    const size_t end = details.find_first_of(" \n\t");
    const std::string_view pair = details.substr(0, end);
    const size_t colon = pair.find(':');
    if (colon != std::string_view::npos)
      use(pair.substr(0, colon), pair.substr(colon + 1));
    if (end == std::string_view::npos) return;
    details.remove_prefix(end + 1);
  }
}

template <typename Number>
bool ReadNumber(std::string_view text, Number* number) {
  return std::from_chars(text.data(), text.data() + text.size(), *number).ec ==
         std::errc();
}

constexpr std::string_view kMemcpy = "memcpy";

MemoryKind SideOf(char letter) {
  if (letter == 'H') return MemoryKind::kHost;
  // P, as in "PtoP", is the memory of a peer device.
  if (letter == 'D' || letter == 'P') return MemoryKind::kDevice;
  return MemoryKind::kUnknown;
}

// Reads "HtoD..." or "H2D", which do not tell the kind of host memory.
void ReadSides(std::string_view sides, Copy* copy) {
  const bool is_short = sides.size() >= 3 && sides[1] == '2';
  const bool is_long = sides.size() >= 4 && sides.substr(1, 2) == "to";
  if (!is_short && !is_long) return;
  copy->source = SideOf(sides[0]);
  copy->destination = SideOf(sides[is_short ? 2 : 3]);
}

}  // namespace

bool IsCopyEvent(const XEventField& event) {
  return BeginsWith(event.name, kMemcpy) ||
         event.stat("memcpy_details") != nullptr;
}

bool IsMemsetEvent(const XEventField& event) {
  return BeginsWith(event.name, "memset") ||
         event.stat("memset_details") != nullptr;
}

void ReadKernelDetails(std::string_view details, Kernel* kernel) {
  // Static and dynamic shared memory are one number in a Trace.
  int64_t shared_bytes = -1;
  ForEachPair(details, [&](std::string_view key, std::string_view value) {
    int64_t number = 0;
    if (key == "grid") {
      kernel->grid = ReadThree(value);
    } else if (key == "block") {
      kernel->block = ReadThree(value);
    } else if (key == "occ_pct") {
      float percent = -1;
      if (ReadNumber(value, &percent) && percent >= 0)
        kernel->occupancy_frac = percent / 100;
    } else if (!ReadNumber(value, &number) || number < 0 ||
               number > INT32_MAX) {
      return;
    } else if (key == "regs") {
      kernel->registers_per_thread = static_cast<int32_t>(number);
    } else if (key == "static_shared" || key == "dynamic_shared" ||
               key == "shm" || key == "group_mem") {
      shared_bytes = std::max<int64_t>(shared_bytes, 0) + number;
    }
  });
  kernel->shared_memory_bytes =
      static_cast<int32_t>(std::min<int64_t>(shared_bytes, INT32_MAX));
}

int64_t ReadBytes(std::string_view details) {
  int64_t bytes = -1;
  ForEachPair(details, [&](std::string_view key, std::string_view value) {
    if (key == "num_bytes" || key == "size") ReadNumber(value, &bytes);
  });
  return bytes;
}

void ReadCopyDetails(const XEventField& event, Copy* copy) {
  const std::string_view details = event.text("memcpy_details");
  copy->bytes = ReadBytes(details);
  bool tells_kinds = false;
  ForEachPair(details, [&](std::string_view key, std::string_view value) {
    tells_kinds = tells_kinds || key == "kind_src";
    if (key == "kind_src") copy->source = MemoryKindOf(value);
    if (key == "kind_dst") copy->destination = MemoryKindOf(value);
    if (key == "async") copy->is_async = value != "0";
  });
  if (!tells_kinds && BeginsWith(event.name, kMemcpy))
    ReadSides(event.name.substr(kMemcpy.size()), copy);
}

int32_t ReadContext(std::string_view text) {
  int32_t context = 0;
  if (text.starts_with("$$")) ReadNumber(text.substr(2), &context);
  return context;
}

}  // namespace stepscope
