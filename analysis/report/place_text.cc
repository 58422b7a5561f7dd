#include "report/place_text.h"

#include <algorithm>
#include <utility>

#include "report/layout/text_page.h"
#include "report/layout/text_table.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kPlacesShown = 8;
constexpr size_t kPlaceNameColumns = 26;

std::string NameOf(const PlaceTime& place) {
  return place.class_name.empty() || place.class_name == place.name
             ? place.name
             : place.name + " (" + place.class_name + ")";
}

void AppendPlaces(const Report& report, const std::vector<PlaceTime>& places,
                  const std::string& title, bool nested, bool all, int width,
                  std::vector<std::string>& lines) {
  if (places.empty()) return;
  if (!lines.empty()) lines.emplace_back();
  const size_t count =
      all ? places.size() : std::min(kPlacesShown, places.size());
  std::vector<TableColumn> columns;
  std::vector<double PlaceTime::*> members;
  const auto add = [&](const char* heading, size_t width,
                       double PlaceTime::*member, int spare = 0) {
    columns.push_back({heading, width, spare});
    members.push_back(member);
  };
  if (report.has_gpu) {
    add("GPU ms", 9, &PlaceTime::gpu_self_ms_per_step);
    if (nested) add("with nested", 13, &PlaceTime::gpu_total_ms_per_step, 1);
  }
  add(report.has_gpu ? "host ms" : "self ms", 9, &PlaceTime::self_ms_per_step);
  if (nested && !report.has_gpu) {
    add("total ms", 10, &PlaceTime::total_ms_per_step);
  }
  add("calls", 8, &PlaceTime::calls_per_step, 2);
  TextTable table(title + (report.steps.count > 0 ? ", per step" : ""),
                  kPlaceNameColumns, std::move(columns));
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::string> cells;
    for (double PlaceTime::*member : members) {
      const double value = places[i].*member;
      cells.push_back(member == &PlaceTime::calls_per_step ? CallsText(value)
                                                           : Number(value));
    }
    table.Add("  " + NameOf(places[i]), std::move(cells));
  }
  for (std::string& line : table.Lines(width)) lines.push_back(std::move(line));
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

std::vector<std::string> PlaceLines(const Report& report, bool all, int width) {
  std::vector<std::string> lines;
  AppendPlaces(report, report.modules, "modules by time", true, all, width,
               lines);
  // A source line encloses no other one, so it has no time "with nested".
  AppendPlaces(report, report.lines, "source lines by time", false, all, width,
               lines);
  return lines;
}

void WritePlaces(const Report& report, JsonText& json) {
  WriteList("modules", report.modules, true, json);
  WriteList("lines", report.lines, false, json);
}

}  // namespace stepscope
