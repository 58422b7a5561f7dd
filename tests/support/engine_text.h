// EngineText: makes CPU steps with the ranges that autograd's engine opens.
#pragma once

#include <string>

#include "support/compute_text.h"

namespace stepscope {

class EngineText {
 public:
  // Adds an op in the forward pass. With a sequence number, it records a node.
  void Op(const std::string& name, const std::string& inputs, double us,
          int sequence = -1) {
    text_.Op(name, inputs, {}, us, sequence < 0 ? "" : Sequence(sequence));
  }
  // Adds a node. The engine adds its gradient to another one of the sizes
  // `added`. With `both`, the node computes the gradients of a layer's weight
  // and input.
  void Node(int number, double us, const std::string& added = "",
            bool both = false) {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    if (both) {
      Op("aten::mm", "", us / 2);
      Op("aten::mm", "", us / 2);
    } else {
      Op("aten::mul", "", us);
    }
    text_.End("XBackward0", "", 0, "kind=backward " + Sequence(number));
    if (!added.empty()) Op("aten::add_", "(" + added + "," + added + ")", 20);
    text_.End("autograd::engine::evaluate_function: XBackward0", "", 0,
              "kind=backward " + Sequence(number));
  }
  // Adds the node that keeps a parameter's gradient; if `adds`, by adding to an
  // existing one.
  void Keep(const std::string& gradient, bool adds = false) {
    text_.Begin();
    text_.Pass(1);
    text_.Begin();
    text_.Pass(1);
    if (adds) Op("aten::add_", "(" + gradient + "," + gradient + ")", 20);
    text_.End("torch::autograd::AccumulateGrad", "(" + gradient + ")");
    text_.End(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "", 0, "kind=backward");
  }
  // Adds a fused optimizer step.
  void Update() {
    text_.Begin();
    Op("aten::_fused_adamw_", "", 50);
    text_.EndRange("Optimizer.step#AdamW.step", "optimizer");
  }

  void Pass(double us) { text_.Pass(us); }
  void EndStep() { text_.EndStep(); }
  Report Analyzed() const { return text_.Analyzed(); }

 private:
  static std::string Sequence(int number) {
    return "sequence=" + std::to_string(number);
  }

  ComputeText text_;
};

}  // namespace stepscope
