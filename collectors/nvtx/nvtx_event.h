// NvtxMessage: the contents of an NVTX event, read from any of the forms in
// which NVTX passes it. Inline, because every range takes this path. Texts are
// not copied, so a message is valid only during the call.
#pragma once

#include <stepscope/slot.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "nvtx_name_hooks.h"
#include "nvtx_names.h"
#include "nvtx_slots.h"
#include "nvtx_text.h"

namespace stepscope {

// Longer than any text that is kept, so that cutting a text is noticed and
// counted.
using WideBuffer = char[kMaxNameBytes + 4];

// Everything in an event except its time.
struct NvtxMessage {
  std::string_view text;
  const void* registered = nullptr;  // instead of the text
  NvtxPayload payload = NvtxPayload::kNone;
  uint32_t category = 0;
  uint64_t payload_bits = 0;

  std::string_view name() const {
    return registered != nullptr ? NvtxNames::TextOf(registered) : text;
  }
};

inline NvtxMessage FromText(const char* message) {
  NvtxMessage event;
  if (message != nullptr) event.text = message;
  return event;
}

inline NvtxMessage FromWide(const wchar_t* message, WideBuffer& buffer) {
  NvtxMessage event;
  event.text = ToUtf8(message, buffer);
  return event;
}

inline NvtxMessage FromAttributes(const nvtxEventAttributes_t* attributes,
                                  WideBuffer& buffer) {
  NvtxMessage event;
  // A shorter structure belongs to a version that NVTX 3 never shipped with.
  if (attributes == nullptr || attributes->size < sizeof(*attributes)) {
    return event;
  }
  event.category = attributes->category;
  const auto type = static_cast<uint32_t>(attributes->payloadType);
  if (type < kNvtxPayloadTypes) {
    event.payload = static_cast<NvtxPayload>(type);
    std::memcpy(&event.payload_bits, &attributes->payload, kNvtxPayloadBytes);
  }
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      if (attributes->message.ascii != nullptr) {
        event.text = attributes->message.ascii;
      }
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      event.text = ToUtf8(attributes->message.unicode, buffer);
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      event.registered = attributes->message.registered;
      break;
    default:
      break;
  }
  return event;
}

}  // namespace stepscope
