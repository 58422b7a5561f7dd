#include "everywhere.h"

namespace gallery {

std::vector<Also> AlsoEverywhere() {
  return {{"small-batch",
           "a step takes only a few milliseconds, so the part that does not "
           "grow with the batch is a large share of it",
           /*when_fixed=*/true}};
}

}  // namespace gallery
