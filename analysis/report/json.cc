// The schema is analysis/README.md, version 1.
#include <stepscope/analysis.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "labels.h"

namespace stepscope {
namespace {

// The length of the valid UTF-8 character at the front of `text`; 0 if none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

class Json {
 public:
  void Open(char bracket) {
    Separate();
    text_ += bracket;
    first_ = true;
    ++depth_;
  }
  void Close(char bracket) {
    --depth_;
    if (!first_) NewLine();
    text_ += bracket;
    first_ = false;
  }
  void Key(std::string_view key) {
    Separate();
    Quote(key);
    text_ += ": ";
    after_key_ = true;
  }
  void Value(std::string_view text) {
    Separate();
    Quote(text);
  }
  void Value(const char* text) { Value(std::string_view(text)); }
  void Value(const std::string& text) { Value(std::string_view(text)); }
  void Value(bool value) { Raw(value ? "true" : "false"); }
  void Value(int64_t value) { Raw(std::to_string(value)); }
  void Value(int32_t value) { Raw(std::to_string(value)); }
  void Value(double value) {
    if (!std::isfinite(value)) return Raw("null");
    char buffer[32];
    if (value == 0) value = 0;  // no negative zero
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, value + 0.0).ptr;
    Raw(std::string_view(buffer, static_cast<size_t>(end - buffer)));
  }
  template <typename T>
  void Field(std::string_view key, const T& value) {
    Key(key);
    Value(value);
  }
  template <typename List>
  void Texts(std::string_view key, const List& list) {
    Key(key);
    Open('[');
    for (const auto& entry : list) Value(entry);
    Close(']');
  }
  std::string Take() { return std::move(text_) + "\n"; }

 private:
  void Raw(std::string_view text) {
    Separate();
    text_ += text;
  }
  void NewLine() {
    text_ += '\n';
    text_.append(2 * depth_, ' ');
  }
  void Separate() {
    if (after_key_) {
      after_key_ = false;
      return;
    }
    if (depth_ == 0) return;
    if (!first_) text_ += ',';
    first_ = false;
    NewLine();
  }
  void Quote(std::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    while (!text.empty()) {
      const size_t length = CharacterLength(text);
      const char c = text[0];
      if (length == 0) {
        text_ += "\xef\xbf\xbd";
      } else if (length > 1) {
        text_ += text.substr(0, length);
      } else if (c == '"' || c == '\\') {
        (text_ += '\\') += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        text_ += "\\u00";
        (text_ += kHex[c >> 4]) += kHex[c & 15];
      } else {
        text_ += c;
      }
      text.remove_prefix(std::max<size_t>(length, 1));
    }
    text_ += '"';
  }

  std::string text_;
  size_t depth_ = 0;
  bool first_ = true;
  bool after_key_ = false;
};

void WriteRun(const RunInfo& run, Json& json) {
  json.Key("run");
  json.Open('{');
  json.Field("name", run.name);
  json.Field("run_id", run.run_id);
  json.Field("cycle", run.cycle);
  json.Field("host", run.host);
  json.Field("rank", run.rank);
  json.Field("world_size", run.world_size);
  json.Field("producer", run.producer);
  json.Field("source", run.source);
  json.Field("torch_version", run.torch_version);
  json.Field("cuda_version", run.cuda_version);
  json.Field("cpu_model", run.cpu_model);
  json.Field("usable_cores", run.usable_cores);
  json.Key("devices");
  json.Open('[');
  for (const Device& device : run.devices) json.Value(device.name);
  json.Close(']');
  json.Close('}');
}

void WriteTimes(const Report& report, Json& json) {
  json.Key("steps");
  json.Open('{');
  json.Field("count", report.steps.count);
  json.Field("steady", report.steps.steady);
  json.Field("mean_ms", report.steps.mean_ms);
  json.Field("median_ms", report.steps.median_ms);
  json.Field("cov", report.steps.cov);
  json.Close('}');
  json.Key("time_split_ms");
  json.Open('{');
  for (const auto& [cause, ms] : report.time_split_ms) json.Field(cause, ms);
  json.Close('}');
  json.Key("phases_ms");
  json.Open('{');
  for (const auto& [phase, ms] : report.phases_ms) json.Field(phase, ms);
  json.Close('}');
  json.Key("replay");
  json.Open('{');
  json.Field("no_edit_error", report.replay.no_edit_error);
  json.Field("limit_error", report.replay.limit_error);
  json.Field("speaks", report.replay.speaks);
  json.Field("why_not", report.replay.why_not);
  json.Close('}');
}

void WriteFinding(const Finding& finding, Json& json) {
  json.Open('{');
  json.Field("id", finding.id);
  json.Field("status", StatusName(finding.status));
  json.Field("severity", SeverityName(finding.severity));
  json.Field("confidence", ConfidenceName(finding.confidence));
  json.Key("gain_ms_per_step");
  json.Open('{');
  json.Field("expected", finding.gain.expected_ms);
  json.Field("low", finding.gain.low_ms);
  json.Field("high", finding.gain.high_ms);
  json.Close('}');
  json.Field("gain_is", GainName(finding.gain_is));
  json.Field("speedup", finding.speedup);
  json.Field("evidence", finding.evidence);
  json.Key("examples");
  json.Open('[');
  for (const Example& example : finding.examples) {
    json.Open('{');
    json.Field("step", example.step);
    json.Field("begin_ns", example.begin_ns);
    json.Field("end_ns", example.end_ns);
    json.Field("what", example.what);
    json.Close('}');
  }
  json.Close(']');
  json.Field("where", finding.where);
  json.Field("assumption", finding.assumption);
  json.Key("fix");
  json.Open('{');
  json.Field("cpp", finding.fix_cpp);
  json.Field("python", finding.fix_python);
  json.Close('}');
  json.Field("wrong_if", finding.wrong_if);
  json.Field("reference", finding.reference);
  json.Close('}');
}

void WriteMissing(const Report& report, Json& json) {
  json.Texts("clean", report.clean);
  json.Key("could_not_look");
  json.Open('[');
  for (const CouldNotLook& entry : report.could_not_look) {
    json.Open('{');
    json.Field("id", entry.id);
    json.Field("why", entry.why);
    json.Close('}');
  }
  json.Close(']');
  json.Texts("muted", report.muted);
  json.Key("losses");
  json.Open('[');
  for (const Loss& loss : report.losses) {
    json.Open('{');
    json.Field("name", loss.name);
    json.Field("severity", SeverityName(loss.severity));
    json.Field("count", loss.count);
    json.Field("detail", loss.detail);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace

std::string ToJson(const Report& report) {
  Json json;
  json.Open('{');
  json.Field("version", int32_t{1});
  WriteRun(report.run, json);
  json.Field("has_gpu", report.has_gpu);
  WriteTimes(report, json);
  json.Key("findings");
  json.Open('[');
  for (const Finding& finding : report.findings) WriteFinding(finding, json);
  json.Close(']');
  WriteMissing(report, json);
  json.Key("plan");
  json.Open('{');
  json.Texts("ids", report.plan.ids);
  json.Texts("changes", report.plan.changes);
  json.Field("step_before_ms", report.plan.step_before_ms);
  json.Field("step_after_ms", report.plan.step_after_ms);
  json.Field("low_ms", report.plan.low_ms);
  json.Field("high_ms", report.plan.high_ms);
  json.Close('}');
  json.Key("top_ops");
  json.Open('[');
  for (const TopOp& op : report.top_ops) {
    json.Open('{');
    json.Field("name", op.name);
    json.Field("self_ms_per_step", op.self_ms_per_step);
    json.Field("total_ms_per_step", op.total_ms_per_step);
    json.Field("calls_per_step", op.calls_per_step);
    json.Close('}');
  }
  json.Close(']');
  json.Close('}');
  return json.Take();
}

}  // namespace stepscope
