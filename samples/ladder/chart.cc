#include "chart.h"

#include <algorithm>
#include <cstdio>

namespace ladder {
namespace {

constexpr int kWidth = 760;
constexpr int kLeft = 230;   // of the bars: labels stand before
constexpr int kRight = 110;  // room for figures behind the bars
constexpr int kTop = 44;
constexpr int kRow = 30;
constexpr int kBar = 18;

constexpr char kStyle[] =
    "<style>"
    "text{font:13px sans-serif;fill:#24292f}"
    ".title{font-weight:bold}"
    ".page{fill:#ffffff}"
    ".bar{fill:#2f6fb5}"
    ".faint{fill:none;stroke:#2f6fb5;stroke-dasharray:4 3}"
    ".spread{stroke:#24292f;stroke-width:1.5}"
    "@media (prefers-color-scheme:dark){"
    "text{fill:#e6edf3}.page{fill:#0d1117}.bar{fill:#5aa2f0}"
    ".faint{stroke:#5aa2f0}.spread{stroke:#e6edf3}}"
    "</style>";

std::string Escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string Text(double x, double y, const char* more,
                 const std::string& text) {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) + "\"" + more + ">" +
         Escape(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2) {
  return "<line class=\"spread\" x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) +
         "\" x2=\"" + Number(x2) + "\" y2=\"" + Number(y2) + "\"/>\n";
}

std::string Draw(const Bar& bar, double y, double scale) {
  const double middle = y + kBar / 2.0;
  const double low = kLeft + bar.low * scale;
  const double high = kLeft + bar.high * scale;
  std::string out =
      Text(kLeft - 10, middle + 4.5, " text-anchor=\"end\"", bar.label);
  out += "<rect class=\"" + std::string(bar.faint ? "faint" : "bar") +
         "\" x=\"" + Number(kLeft) + "\" y=\"" + Number(y) + "\" width=\"" +
         Number(bar.value * scale) + "\" height=\"" + Number(kBar) + "\"/>\n";
  out += Line(low, middle, high, middle) +
         Line(low, middle - 4, low, middle + 4) +
         Line(high, middle - 4, high, middle + 4);
  return out + Text(std::max(high, kLeft + bar.value * scale) + 8, middle + 4.5,
                    "", Number(bar.value));
}

}  // namespace

std::string DrawBars(const std::string& title, const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) most = std::max({most, bar.value, bar.high});
  const double scale = most > 0 ? (kWidth - kLeft - kRight) / most : 0;
  const int height = kTop + kRow * static_cast<int>(bars.size()) + 8;
  const std::string size = "width=\"" + std::to_string(kWidth) +
                           "\" height=\"" + std::to_string(height) + "\"";
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
                    " viewBox=\"0 0 " + std::to_string(kWidth) + " " +
                    std::to_string(height) + "\" role=\"img\">\n<title>" +
                    Escape(title) + "</title>\n" + kStyle +
                    "\n<rect class=\"page\" " + size + "/>\n";
  out += Text(12, 26, " class=\"title\"", title);
  for (size_t i = 0; i < bars.size(); ++i) {
    out += Draw(bars[i], kTop + kRow * static_cast<double>(i), scale);
  }
  return out + "</svg>\n";
}

}  // namespace ladder
