#include "pattern.h"

namespace gallery {

stepscope::ProfileOptions Run::options() const {
  stepscope::ProfileOptions out;
  out.log_dir = log_dir;
  out.name = fixed ? "gallery-fixed" : "gallery";
  out.schedule = {.wait = 5, .warmup = 3, .active = active};
  out.record_shapes = true;
  out.print_report = print_report;
  out.on_report = on_report;
  return out;
}

}  // namespace gallery
