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

  // Row in op_inputs(); kNone if the event recorded none.
  RowId Inputs(const ChromeEvent& event);
  // Row in stacks(); kNone if there is none.
  RowId CallStack(const ChromeEvent& event);
  // Row in stacks(), as Op::code; kNone if the event names no generated code.
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
