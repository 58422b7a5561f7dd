// Functions that python_capture_test.py calls through ctypes: the capture of a
// CUDA graph in which each operator of one name creates a node.
#include <ATen/record_function.h>
#include <stepscope/collectors.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

namespace {

struct Capture {
  std::unique_ptr<stepscope::CaptureScopes> scopes;
  at::CallbackHandle handle = 0;
  std::string op;
  std::string places;  // one line each: "module op op"
};
Capture& TheCapture() {
  static Capture* const capture = new Capture;
  return *capture;
}

std::unique_ptr<at::ObserverContext> OnOp(const at::RecordFunction& fn) {
  Capture& capture = TheCapture();
  if (capture.op != fn.name()) return nullptr;
  const stepscope::CapturedAt at = capture.scopes->Here();
  capture.places += at.module;
  for (const std::string& op : at.ops) capture.places.append(1, ' ').append(op);
  capture.places += '\n';
  return nullptr;
}

}  // namespace

extern "C" {

// `open_calls` and `describe` may be null: no modules.
void probe_capture(const char* op,
                   int32_t (*open_calls)(void*, uint64_t*, int32_t),
                   int32_t (*describe)(void*, uint64_t, char*, int32_t)) {
  Capture& capture = TheCapture();
  capture.scopes = stepscope::MakeTorchCaptureScopes(
      {.with_modules = open_calls != nullptr,
       .module_hook = {.open_calls = open_calls, .describe = describe}});
  capture.op = op;
  capture.places.clear();
  capture.scopes->Begin();
  // Added after the capture's callbacks, so that its operator is already open.
  capture.handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&OnOp).scopes({at::RecordScope::FUNCTION}));
}

// Writes the places to `text`, cut off at `capacity` bytes.
void probe_end_capture(char* text, int64_t capacity) {
  Capture& capture = TheCapture();
  at::removeCallback(capture.handle);
  capture.scopes->End();
  std::strncpy(text, capture.places.c_str(), static_cast<size_t>(capacity) - 1);
  text[capacity - 1] = '\0';
}

}  // extern "C"
