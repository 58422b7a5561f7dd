#include <absl/strings/str_cat.h>
#include <stepscope/event_buffer.h>

#include <new>
#include <utility>

#include "event_chunks.h"
#include "thread_registry.h"

namespace stepscope {

// The number of the window. It prevents a late Close() from closing a newer
// window.
struct EventBuffers::Window {
  uint64_t number;
};

EventBuffers::EventBuffers(std::unique_ptr<Window> window)
    : window_(std::move(window)) {}

absl::StatusOr<std::unique_ptr<EventBuffers>> EventBuffers::Open(
    const Options& options) {
  if (options.max_buffer_bytes < static_cast<int64_t>(kChunkBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "event buffers: max_buffer_bytes is ", options.max_buffer_bytes,
        ", less than one chunk of ", kChunkBytes,
        "; use at least that, the default is 256 MiB"));
  }
  // Allocated before the window opens, because memory may run out.
  auto window = std::make_unique<Window>();
  std::unique_ptr<EventBuffers> buffers(new EventBuffers(nullptr));
  absl::StatusOr<uint64_t> number =
      ThreadRegistry::Get().Open(options.max_buffer_bytes);
  if (!number.ok()) return number.status();
  window->number = *number;
  buffers->window_ = std::move(window);
  return buffers;
}

EventBuffers::~EventBuffers() {
  if (window_ == nullptr) return;
  try {
    Close();
  } catch (const std::bad_alloc&) {
    ThreadRegistry::Get().Discard(window_->number);
  }
}

std::unique_ptr<EventRecording> EventBuffers::Close() {
  std::unique_ptr<EventRecording> recording =
      ThreadRegistry::Get().Close(window_->number);
  window_.reset();
  return recording;
}

}  // namespace stepscope
