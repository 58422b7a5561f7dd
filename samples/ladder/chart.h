// The ladder as a picture: one bar of samples per second for each rung.
#pragma once

#include <string>
#include <vector>

namespace ladder {

struct Bar {
  std::string label;
  double value = 0;
  double low = 0;  // the whisker's ends
  double high = 0;
  bool faint = false;  // drawn as an outline
};

// An SVG, legible on light and on dark pages, which needs no fonts or scripts.
// Labels may hold any text. REQUIRES: at least one bar, values not negative.
std::string DrawBars(const std::string& title, const std::vector<Bar>& bars);

}  // namespace ladder
