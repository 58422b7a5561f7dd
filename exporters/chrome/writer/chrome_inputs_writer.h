// Writes the args of an op that describe its inputs and its stack. Ops share
// lists, so each list is formatted once.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

class ChromeInputsWriter {
 public:
  explicit ChromeInputsWriter(const Trace& trace);

  // Appends `, "Input Dims": ...` for a row of op_inputs().
  void AppendInputs(RowId inputs, std::string& out);
  // Appends `, "Call stack": ...` for a row of stacks().
  void AppendStack(RowId stack, std::string& out);

 private:
  std::string InputsText(const OpInputs& inputs) const;
  std::string StackText(const Stack& stack) const;

  const Trace& trace_;
  std::vector<std::string> inputs_;  // "" until it is needed
  std::vector<std::string> stacks_;
};

}  // namespace stepscope
