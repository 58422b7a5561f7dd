// ChromeFlavour: the reader for which a Chrome trace is written.
#pragma once

namespace stepscope {

enum class ChromeFlavour {
  kTb,      // as torch-tb-profiler 0.4.3 understands it
  kKineto,  // as Kineto writes it today
};

// Returns the flavour's name in the header object "stepscope".
inline const char* FlavourText(ChromeFlavour flavour) {
  return flavour == ChromeFlavour::kTb ? "tb" : "kineto";
}

}  // namespace stepscope
