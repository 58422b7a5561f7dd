#include "pattern.h"

namespace gallery {

stepscope::ProfileOptions Run::options() const {
  stepscope::ProfileOptions out;
  out.log_dir = log_dir;
  out.name = fixed ? "gallery-fixed" : "gallery";
  // 5 + 3 + 10 active steps are the 18 of kSteps.
  out.schedule = {.wait = 5, .warmup = 3, .active = active};
  // Needed by rules about batches and layouts, which read the shapes of inputs.
  out.record_shapes = true;
  out.print_report = print_report;
  out.on_report = on_report;
  return out;
}

}  // namespace gallery
