// ChromeInputsReader: reads the args that are lists (inputs of ops, call
// stacks) into rows of a TraceBuilder. Shapes and stacks repeat, so each
// distinct text is parsed once.
#pragma once

#include <stepscope/trace_builder.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "chrome/reader/chrome_event_reader.h"

namespace stepscope {

class ChromeInputsReader {
 public:
  // `builder` must outlive this.
  explicit ChromeInputsReader(TraceBuilder* builder);
  ~ChromeInputsReader();
  ChromeInputsReader(const ChromeInputsReader&) = delete;
  ChromeInputsReader& operator=(const ChromeInputsReader&) = delete;

  // Returns the row in op_inputs(), or kNone if the event has no inputs.
  RowId Inputs(const ChromeEvent& event);
  // Returns the row in stacks(), or kNone if the event has no call stack.
  RowId CallStack(const ChromeEvent& event);
  // Returns the row in stacks() for Op::code, or kNone if the event names no
  // generated code.
  RowId Code(const ChromeEvent& event);

 private:
  struct Json;
  RowId ParseInputs(const std::string& text);
  RowId ParseStack(const std::string& text);

  TraceBuilder* builder_;
  std::unique_ptr<Json> json_;
  std::string key_;
  std::unordered_map<std::string, RowId> inputs_;
  std::unordered_map<std::string, RowId> stacks_;
};

}  // namespace stepscope
