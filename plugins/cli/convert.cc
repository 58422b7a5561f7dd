#include <stepscope/analysis.h>
#include <stepscope/export.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "command_words.h"
#include "complain.h"
#include "one_trace.h"
#include "trace_commands.h"

namespace stepscope {
namespace {

constexpr OptionName kConvertOptions[] = {
    {"--flavour"}, {"--advice", false}, {"--no-input-wait", false}};
constexpr std::string_view kFlavours[] = {"kineto", "tb"};

constexpr const char* kConvertUsage =
    R"(Usage: stepscope convert [options] IN OUT

Reads the trace IN, whatever its format (or the only one in a folder or log
directory), and writes it as OUT, whose name says the format:
  .json, .json.gz          Chrome trace in Kineto's dialect: Perfetto, HTA
  .pt.trace.json[.gz]      Chrome trace for the PyTorch plugin of TensorBoard
  .xplane.pb, .pb          XSpace for XProf
  .txt                     one line per row, to read and to compare

Options:
  --flavour kineto|tb  the dialect of a Chrome trace, whatever the name says
  --no-input-wait      leave out of an XSpace the row of waits for batches,
                       which is there for XProf to count them as input
  --advice             analyse the trace too and draw what was found in it
  --help, -h           this text

Exit status: 0 written, 1 not readable or not writable, 2 wrong usage.
)";

absl::StatusOr<Format> FormatOf(const std::string& path,
                                const CommandWords& words) {
  if (path.ends_with(".pb")) return Format::kXSpace;
  if (path.ends_with(".txt")) return Format::kText;
  if (!path.ends_with(".json") && !path.ends_with(".json.gz")) {
    return absl::InvalidArgumentError(
        "the name '" + path +
        "' says no format: end it in .json, .json.gz, .pb or .txt");
  }
  const bool is_tb =
      path.ends_with(".pt.trace.json") || path.ends_with(".pt.trace.json.gz");
  if (!words.has("--flavour"))
    return is_tb ? Format::kChromeTb : Format::kChromeKineto;
  const auto flavour =
      ChoiceOf("--flavour", words.value("--flavour"), kFlavours);
  if (!flavour.ok()) return flavour.status();
  return *flavour == 1 ? Format::kChromeTb : Format::kChromeKineto;
}

}  // namespace

int ConvertCommand(std::span<const std::string> words) {
  const absl::StatusOr<CommandWords> parsed =
      ParseCommandWords(words, kConvertOptions);
  if (!parsed.ok()) return UsageError(parsed.status());
  if (parsed->has("--help")) {
    std::fputs(kConvertUsage, stdout);
    return 0;
  }
  if (parsed->paths.size() != 2) {
    return UsageError(absl::InvalidArgumentError(
        "convert needs two names: stepscope convert IN OUT"));
  }
  const std::string& in = parsed->paths[0];
  const std::string& out = parsed->paths[1];
  const absl::StatusOr<Format> format = FormatOf(out, *parsed);
  if (!format.ok()) return UsageError(format.status());
  std::error_code error;
  if (std::filesystem::equivalent(in, out, error)) {
    return UsageError(absl::InvalidArgumentError(
        "IN and OUT are the same file; convert writes a new one"));
  }
  const absl::StatusOr<Trace> trace = ReadOneTrace(in);
  if (!trace.ok()) {
    Complain(trace.status());
    return 1;
  }
  for (const Loss& loss : trace->losses()) Complain(in + ": " + loss.detail);
  std::vector<Annotation> annotations;
  if (parsed->has("--advice")) annotations = ToAnnotations(Analyze(*trace));
  const absl::Status written =
      WriteTrace(*trace, annotations, *format, out,
                 {.input_wait = !parsed->has("--no-input-wait")});
  if (written.ok()) return 0;
  Complain(written);
  return 1;
}

}  // namespace stepscope
