// Loops of NVTX calls in a library with its own copy of NVTX.
#include <nvtx3/nvToolsExt.h>

extern "C" {

__attribute__((visibility("default"))) void PushPop(int pairs) {
  for (int i = 0; i < pairs; ++i) {
    nvtxRangePushA("layer1.0.conv1 forward");
    nvtxRangePop();
  }
}

// Makes the calls that the Python package nvtx makes.
__attribute__((visibility("default"))) void PushPopRegistered(int pairs) {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("bench");
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered =
      nvtxDomainRegisterStringA(domain, "layer1.0.conv1 forward");
  for (int i = 0; i < pairs; ++i) {
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxDomainRangePop(domain);
  }
}

__attribute__((visibility("default"))) void StartEnd(int pairs) {
  for (int i = 0; i < pairs; ++i) {
    nvtxRangeEnd(nvtxRangeStartA("layer1.0.conv1 forward"));
  }
}
}
