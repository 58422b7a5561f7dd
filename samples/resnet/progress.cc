#include "progress.h"

#include <cmath>

namespace resnet {
namespace {

constexpr int kBarWidth = 30;
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

std::string Progress::Bar(int done) const {
  int full = kBarWidth * done / total_;
  std::string bar(kBarWidth, '-');
  for (int i = 0; i < full; ++i) bar[i] = '#';
  return "[" + bar + "]";
}

void Progress::Step(int done, double step_ms, std::optional<double> loss) {
  if (loss) loss_ = loss;
  if (loss && !std::isfinite(*loss) && !said_bad_loss_) {
    said_bad_loss_ = true;
    Say("the loss at step " + std::to_string(done) + " is " +
        (std::isnan(*loss) ? "not a number" : "infinite") +
        ": training has failed, though its speed can still be measured; try a "
        "smaller --lr");
  }
  // A log gets a line only for steps whose loss was read. A terminal redraws
  // its line at every step.
  if (!terminal_ && !loss) return;
  char text[96];
  std::snprintf(text, sizeof(text), " step %d of %d  %.1f ms  %.0f samples/s",
                done, total_, step_ms, batch_ * 1000 / step_ms);
  std::string line = (terminal_ ? Bar(done) : std::string("resnet")) + text;
  if (loss_) {
    std::snprintf(text, sizeof(text), "  loss %.3f", *loss_);
    line += text;
  }
  std::fprintf(out_, "%s%s%s", terminal_ ? kClearLine : "", line.c_str(),
               terminal_ ? "\r" : "\n");
  std::fflush(out_);
  drawn_ = terminal_;
  if (done == total_) Finish();
}

void Progress::Say(const std::string& line) {
  std::fprintf(out_, "%sresnet: %s\n", drawn_ ? kClearLine : "", line.c_str());
  std::fflush(out_);
  drawn_ = false;
}

void Progress::Finish() {
  if (drawn_) std::fprintf(out_, "\n");
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace resnet
