#include "gpu/recorded_cupti.h"

#include <stepscope/clock.h>
#include <stepscope/trace_builder.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "cupti_decode.h"

namespace stepscope {
namespace {

constexpr std::string_view kMagic = "stepscope cupti 1\n";

// CUPTI's callback has no user pointer.
SavingCupti* g_saving = nullptr;
CUpti_BuffersCallbackCompleteFunc g_complete = nullptr;

template <typename Number>
void Put(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Reads the file from the start. Functions return false if it is too short.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  template <typename Number>
  bool Take(Number* number) {
    std::string_view text;
    if (!Take(sizeof(Number), &text)) return false;
    std::memcpy(number, text.data(), sizeof(Number));
    return true;
  }
  bool Take(uint64_t length, std::string_view* text) {
    if (bytes_.size() < length) return false;
    *text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return true;
  }

 private:
  std::string_view bytes_;
};

bool Parse(Cursor cursor, RecordedCupti* recorded) {
  std::string_view text;
  uint32_t count = 0;
  if (!cursor.Take(kMagic.size(), &text) || text != kMagic ||
      !cursor.Take(&recorded->version) || !cursor.Take(&count)) {
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    if (!cursor.Take(&length) || !cursor.Take(length, &text)) return false;
    recorded->buffers.emplace_back(text.begin(), text.end());
  }
  if (!cursor.Take(&count)) return false;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t address = 0;
    uint32_t length = 0;
    if (!cursor.Take(&address) || !cursor.Take(&length) ||
        !cursor.Take(length, &text)) {
      return false;
    }
    recorded->texts[address] = text;
  }
  return true;
}

}  // namespace

std::string_view RecordedCupti::TextAt(const char* address) const {
  const auto found = texts.find(reinterpret_cast<uint64_t>(address));
  return found == texts.end() ? std::string_view() : found->second;
}

absl::Status WriteRecorded(const RecordedCupti& recorded,
                           const std::string& path) {
  std::string bytes(kMagic);
  Put(bytes, recorded.version);
  Put(bytes, static_cast<uint32_t>(recorded.buffers.size()));
  for (const std::vector<uint8_t>& buffer : recorded.buffers) {
    Put(bytes, uint64_t{buffer.size()});
    bytes.append(buffer.begin(), buffer.end());
  }
  Put(bytes, static_cast<uint32_t>(recorded.texts.size()));
  for (const auto& [address, text] : recorded.texts) {
    Put(bytes, address);
    Put(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? absl::OkStatus()
              : absl::UnavailableError("cannot write " + path);
}

absl::StatusOr<RecordedCupti> ReadRecorded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::UnavailableError("cannot open " + path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  RecordedCupti recorded;
  const std::string text = bytes.str();
  if (!Parse(Cursor(text), &recorded))
    return absl::DataLossError(path + " is no whole file of CUPTI buffers");
  return recorded;
}

SavingCupti::SavingCupti(std::unique_ptr<CuptiApi> inner)
    : inner_(std::move(inner)) {
  g_saving = this;
}

SavingCupti::~SavingCupti() { g_saving = nullptr; }

CUptiResult SavingCupti::RegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc request,
    CUpti_BuffersCallbackCompleteFunc complete) {
  g_complete = complete;
  return inner_->RegisterCallbacks(request, &Complete);
}

void CUPTIAPI SavingCupti::Complete(CUcontext context, uint32_t stream,
                                    uint8_t* buffer, size_t bytes,
                                    size_t valid_bytes) {
  if (g_saving != nullptr && valid_bytes > 0) {
    const std::lock_guard lock(g_saving->mutex_);
    g_saving->buffers_.emplace_back(buffer, buffer + valid_bytes);
  }
  g_complete(context, stream, buffer, bytes, valid_bytes);
}

RecordedCupti SavingCupti::Recorded() const {
  const std::lock_guard lock(mutex_);
  RecordedCupti recorded;
  recorded.version = inner_->version();
  recorded.buffers = buffers_;
  // The decoder knows which records refer to texts.
  std::vector<CuptiBuffer> views;
  for (const std::vector<uint8_t>& buffer : recorded.buffers)
    views.push_back({buffer.data(), buffer.size()});
  const ClockReading now = ReadClock();
  const CuptiReading moment = {
      .ticks = now.ticks, .cupti_ns = 1, .valid = true};
  TraceBuilder builder;
  (void)DecodeCupti({.buffers = views,
                     .times = CuptiTimes(moment, moment, ClockMap(now, now)),
                     .text =
                         [&](const char* address) {
                           const std::string_view text = address;
                           recorded.texts[reinterpret_cast<uint64_t>(address)] =
                               text;
                           return text;
                         },
                     .all_calls = true},
                    *inner_, builder);
  return recorded;
}

}  // namespace stepscope
