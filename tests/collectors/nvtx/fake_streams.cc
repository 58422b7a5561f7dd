// The functions of CUPTI and the CUDA driver that number streams; both test
// libraries contain all of them. Stream 0x70 has number 7 in context 3.
#include <cstdint>

extern "C" {
__attribute__((visibility("default"))) int cuptiGetStreamIdEx(void* context,
                                                              void* stream,
                                                              uint8_t,
                                                              uint32_t* id) {
  if (context != reinterpret_cast<void*>(0x30)) return 1;
  if (stream != reinterpret_cast<void*>(0x70)) return 1;
  *id = 7;
  return 0;
}
__attribute__((visibility("default"))) int cuptiGetContextId(void* context,
                                                             uint32_t* id) {
  if (context != reinterpret_cast<void*>(0x30)) return 1;
  *id = 3;
  return 0;
}
__attribute__((visibility("default"))) int cuStreamGetCtx(void*,
                                                          void** context) {
  *context = reinterpret_cast<void*>(0x30);
  return 0;
}
}
