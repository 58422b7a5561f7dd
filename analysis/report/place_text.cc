#include "report/place_text.h"

#include <algorithm>

#include "report/text_page.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kPlacesShown = 8;
constexpr size_t kLeastName = 24;
constexpr size_t kMostName = 56;

std::string NameOf(const PlaceTime& place) {
  return place.class_name.empty() || place.class_name == place.name
             ? place.name
             : place.name + " (" + place.class_name + ")";
}

void AppendPlaces(const Report& report, const std::vector<PlaceTime>& places,
                  const std::string& title, bool nested, bool all,
                  std::vector<std::string>& lines) {
  if (places.empty()) return;
  if (!lines.empty()) lines.emplace_back();
  const size_t count =
      all ? places.size() : std::min(kPlacesShown, places.size());
  size_t width = kLeastName;
  for (size_t i = 0; i < count; ++i) {
    width = std::max(width, std::min(Columns(NameOf(places[i])), kMostName));
  }
  // The heading and the rows are built by one function, so that their columns
  // agree.
  const auto line = [&](const std::string& name, auto cell) {
    std::string text = PadRight(name, width + 2);
    if (report.has_gpu) {
      text += PadLeft(cell("GPU ms", &PlaceTime::gpu_self_ms_per_step), 9);
      if (nested) {
        text +=
            PadLeft(cell("with nested", &PlaceTime::gpu_total_ms_per_step), 13);
      }
    }
    text += PadLeft(cell(report.has_gpu ? "host ms" : "self ms",
                         &PlaceTime::self_ms_per_step),
                    9);
    if (nested && !report.has_gpu) {
      text += PadLeft(cell("total ms", &PlaceTime::total_ms_per_step), 10);
    }
    lines.push_back(text +
                    PadLeft(cell("calls", &PlaceTime::calls_per_step), 8));
  };
  line(title + (report.steps.count > 0 ? ", per step" : ""),
       [](const char* heading, auto) { return std::string(heading); });
  for (size_t i = 0; i < count; ++i) {
    line("  " + Clipped(NameOf(places[i]), width),
         [&](const char*, double PlaceTime::*member) {
           const double value = places[i].*member;
           return member == &PlaceTime::calls_per_step ? CallsText(value)
                                                       : Number(value);
         });
  }
  if (count < places.size()) {
    lines.push_back("  " + std::to_string(places.size() - count) +
                    " more: --verbose");
  }
}

void WriteList(const char* key, const std::vector<PlaceTime>& places,
               bool with_class, JsonText& json) {
  json.Key(key);
  json.Open('[');
  for (const PlaceTime& place : places) {
    json.Open('{');
    json.Field("name", place.name);
    if (with_class) json.Field("class", place.class_name);
    json.Field("self_ms_per_step", place.self_ms_per_step);
    json.Field("total_ms_per_step", place.total_ms_per_step);
    json.Field("gpu_self_ms_per_step", place.gpu_self_ms_per_step);
    json.Field("gpu_total_ms_per_step", place.gpu_total_ms_per_step);
    json.Field("calls_per_step", place.calls_per_step);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

std::vector<std::string> PlaceLines(const Report& report, bool all) {
  std::vector<std::string> lines;
  AppendPlaces(report, report.modules, "modules by time", true, all, lines);
  // A source line encloses no other one, so it has no time "with nested".
  AppendPlaces(report, report.lines, "source lines by time", false, all, lines);
  return lines;
}

void WritePlaces(const Report& report, JsonText& json) {
  WriteList("modules", report.modules, true, json);
  WriteList("lines", report.lines, false, json);
}

}  // namespace stepscope
