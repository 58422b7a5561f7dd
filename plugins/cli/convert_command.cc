#include <stepscope/analysis.h>
#include <stepscope/export.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "one_trace.h"

namespace stepscope {
namespace {

constexpr OptionName kOptions[] = {
    {"--flavour"}, {"--advice", false}, {"--no-input-wait", false}};
constexpr std::string_view kFlavours[] = {"kineto", "tb"};

constexpr const char* kUsage =
    R"(Usage: stepscope convert [options] IN OUT

Reads the trace IN (a file, or a folder or log directory with one trace) and
writes it to OUT. The ending of OUT chooses the format:
  .json, .json.gz          Chrome trace in Kineto's dialect: Perfetto, HTA
  .pt.trace.json[.gz]      Chrome trace for the PyTorch plugin of TensorBoard
  .xplane.pb, .pb          XSpace for XProf
  .txt                     one line per row, to read and to diff

Options:
  --flavour kineto|tb  dialect of a Chrome trace (default: by the ending)
  --no-input-wait      XSpace: omit the row of waits for batches, which exists so
                       that XProf counts them as input
  --advice             analyse the trace and draw the findings in OUT
  --help, -h           print this text

Exit status: 0 written, 1 IN could not be read or OUT could not be written, 2
wrong usage.
)";

absl::StatusOr<Format> FormatOf(const std::string& path,
                                const CommandWords& words) {
  if (path.ends_with(".pb")) return Format::kXSpace;
  if (path.ends_with(".txt")) return Format::kText;
  if (!path.ends_with(".json") && !path.ends_with(".json.gz")) {
    return absl::InvalidArgumentError(
        "cannot tell the format from the name '" + path +
        "'; end it in .json, .json.gz, .xplane.pb or .txt");
  }
  const bool is_tb =
      path.ends_with(".pt.trace.json") || path.ends_with(".pt.trace.json.gz");
  if (!words.has("--flavour"))
    return is_tb ? Format::kChromeTb : Format::kChromeKineto;
  const auto flavour = ChoiceOf(words, "--flavour", kFlavours);
  if (!flavour.ok()) return flavour.status();
  return *flavour == 1 ? Format::kChromeTb : Format::kChromeKineto;
}

}  // namespace

int ConvertCommand(Words words) {
  const auto given = ParseCommandWords(words, kOptions);
  if (!given.ok()) return UsageError(given.status());
  if (given->has("--help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (given->arguments.size() != 2) {
    return UsageError("convert needs two names: stepscope convert IN OUT");
  }
  const std::string& in = given->arguments[0];
  const std::string& out = given->arguments[1];
  const absl::StatusOr<Format> format = FormatOf(out, *given);
  if (!format.ok()) return UsageError(format.status());
  std::error_code error;
  if (std::filesystem::equivalent(in, out, error)) {
    return UsageError("IN and OUT are the same file; give OUT another name");
  }
  const absl::StatusOr<Trace> trace = ReadOneTrace(in);
  if (!trace.ok()) {
    PrintError(trace.status());
    return 1;
  }
  // What a reader could not take from IN is missing in OUT.
  for (const Loss& loss : trace->losses()) PrintError(in + ": " + loss.detail);
  std::vector<Annotation> annotations;
  if (given->has("--advice")) annotations = ToAnnotations(Analyze(*trace));
  const absl::Status written =
      WriteTrace(*trace, annotations, *format, out,
                 {.input_wait = !given->has("--no-input-wait")});
  if (written.ok()) return 0;
  PrintError(written);
  return 1;
}

}  // namespace stepscope
