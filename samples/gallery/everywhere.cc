#include "everywhere.h"

namespace gallery {

std::vector<Also> AlsoEverywhere() {
  return {{"small-batch",
           "steps of a few milliseconds: what takes as long for any batch is a "
           "share of them that a larger one would spread",
           /*when_fixed=*/true}};
}

}  // namespace gallery
