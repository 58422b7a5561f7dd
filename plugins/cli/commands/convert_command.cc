#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/logdir.h>
#include <stepscope/printable.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "command_words.h"
#include "commands.h"
#include "errors.h"
#include "merged_timeline.h"
#include "one_trace.h"
#include "output.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr std::string_view kFlavours[] = {"kineto", "tb"};
constexpr Option kOptions[] = {
    {.name = "--force", .short_name = "-f", .help = "replace OUT if it exists"},
    {.name = "--flavour",
     .value = "FLAVOUR",
     .help = "dialect of a Chrome trace (default: by the ending)",
     .choices = kFlavours},
    {.name = "--no-input-wait",
     .help = "XSpace: omit the row of waits for batches, which exists so that "
             "XProf counts them as input"},
    {.name = "--advice",
     .help = "analyse the trace and draw the findings in OUT"}};

std::vector<Term> Endings() {
  return {
      {".json, .json.gz", "Chrome trace in Kineto's dialect: Perfetto, HTA"},
      {".pt.trace.json[.gz]",
       "Chrome trace for the PyTorch plugin of TensorBoard"},
      {".xplane.pb, .pb", "XSpace for XProf"},
      {".txt", "one line per row, to read and to diff"}};
}

// The format by the ending of OUT, which viewers go by, too. --flavour only
// decides between the dialects of a Chrome trace. Errors: InvalidArgument.
absl::StatusOr<Format> FormatOf(const std::string& path,
                                const CommandWords& words) {
  if (path.ends_with(".pb")) return Format::kXSpace;
  if (path.ends_with(".txt")) return Format::kText;
  if (!path.ends_with(".json") && !path.ends_with(".json.gz")) {
    return absl::InvalidArgumentError(
        "cannot tell the format from the name '" + path +
        "'; end it in .json, .json.gz, .xplane.pb or .txt");
  }
  // The PyTorch plugin of TensorBoard lists files with this ending and no
  // others.
  const bool is_tb =
      path.ends_with(".pt.trace.json") || path.ends_with(".pt.trace.json.gz");
  if (!words.has("--flavour"))
    return is_tb ? Format::kChromeTb : Format::kChromeKineto;
  const auto flavour = ChoiceOf(words, "--flavour", kFlavours);
  if (!flavour.ok()) return flavour.status();
  return *flavour == 1 ? Format::kChromeTb : Format::kChromeKineto;
}

bool IsChrome(Format format) {
  return format == Format::kChromeKineto || format == Format::kChromeTb;
}

const char* NameOf(Format format) {
  switch (format) {
    case Format::kChromeTb:
      return "Chrome trace for TensorBoard's PyTorch plugin";
    case Format::kChromeKineto:
      return "Chrome trace";
    case Format::kXSpace:
      return "XSpace";
    case Format::kText:
      return "text";
  }
  return "";
}

// "wrote out.json.gz: Chrome trace, 1.2 MB", for people who
// wonder whether anything happened.
int SayWritten(const std::string& out, Format format) {
  std::error_code error;
  const auto size = std::filesystem::file_size(out, error);
  return WriteResult(
      "wrote " + Printable(out) + ": " + NameOf(format) +
          (error ? "" : ", " + Bytes(static_cast<double>(size))) + "\n",
      "");
}

// "wrote run.json.gz: 8 ranks on one clock, within 1.2 us (median); ...".
int MergeRanks(const std::vector<std::string>& traces, const std::string& out,
               bool advice) {
  const absl::StatusOr<MergedTimeline> merged = WriteMergedTimeline(
      traces, out, advice, [](const std::string& error) { PrintError(error); });
  if (!merged.ok()) {
    PrintError(merged.status());
    return 1;
  }
  std::string text = "wrote " + out + ": " +
                     Count(static_cast<int64_t>(merged->ranks), "rank");
  if (merged->why_not.empty()) {
    text += " on one clock, within " + Number(merged->residual_us) +
            " us (median); " + Count(merged->collectives, "collective") +
            " joined by arrows";
  } else {
    text += ", clocks as recorded: " + merged->why_not;
  }
  const int status = WriteResult(Printable(text) + "\n", "");
  return merged->ranks == traces.size() ? status : 1;
}

// Why `out` must not be written; OK if it may be.
absl::Status MayWrite(const std::string& in, const std::string& out,
                      bool force) {
  if (absl::Status s = MayReplace(out, {&in, 1}); !s.ok()) return s;
  std::error_code error;
  if (!force && std::filesystem::is_regular_file(out, error))
    return absl::AlreadyExistsError(out + " exists; --force replaces it");
  return absl::OkStatus();
}

int RunConvert(const CommandWords& given) {
  if (given.arguments.size() != 2) {
    return UsageError("convert needs two names: stepscope convert IN OUT");
  }
  const std::string& in = given.arguments[0];
  const std::string& out = given.arguments[1];
  const absl::StatusOr<Format> format = FormatOf(out, given);
  if (!format.ok()) return UsageError(format.status());
  if (given.has("--flavour") && !IsChrome(*format)) {
    return UsageError(absl::InvalidArgumentError(
        "--flavour is for Chrome traces; end OUT in .json or .json.gz"));
  }
  if (given.has("--no-input-wait") && *format != Format::kXSpace) {
    return UsageError(absl::InvalidArgumentError(
        "--no-input-wait is for XSpace; end OUT in .xplane.pb"));
  }
  const absl::StatusOr<ResolvedRun> run = ResolvePath(in);
  const std::vector<std::string> traces =
      run.ok() ? run->trace_files : std::vector<std::string>();
  const absl::Status may = MayWrite(in, out, given.has("--force"));
  // One file named twice is wrong usage (status 2); a file that is in the way
  // is not (status 1).
  if (absl::IsInvalidArgument(may)) return UsageError(may);
  if (!may.ok()) {
    PrintError(may);
    return 1;
  }
  // Only Kineto's dialect has a merged form. For other formats ReadOneTrace()
  // refuses a folder of several traces and names them.
  if (*format == Format::kChromeKineto && traces.size() > 1) {
    SaySkipped(*run);
    const int status = MergeRanks(traces, out, given.has("--advice"));
    return run->unreadable.empty() ? status : 1;
  }
  const absl::StatusOr<Trace> trace = ReadOneTrace(in);
  if (!trace.ok()) {
    PrintError(trace.status());
    return 1;
  }
  // What a reader could not take from IN is missing in OUT.
  for (const Loss& loss : trace->losses()) PrintError(in + ": " + loss.detail);
  std::vector<Annotation> annotations;
  if (given.has("--advice")) annotations = ToAnnotations(Analyze(*trace));
  const absl::Status written =
      WriteTrace(*trace, annotations, *format, out,
                 {.input_wait = !given.has("--no-input-wait"),
                  .unnamed_until_whole = true});
  if (written.ok()) return SayWritten(out, *format);
  PrintError(written);
  return 1;
}

}  // namespace

const Command kConvertCommand = {
    .name = "convert",
    .arguments = "IN OUT",
    .summary = "write a trace in another format",
    .description =
        "Reads the trace IN (a file, a folder or log directory with one trace, "
        "or - for standard input), writes it to OUT and says so.\n"
        "A folder or log directory with a trace per rank becomes one timeline "
        "for Perfetto, if OUT ends in .json or .json.gz: the ranks' clocks are "
        "aligned by the ends of their collectives, and arrows lead from each "
        "member of a collective to the one that came last.",
    .terms_title = "The ending of OUT chooses the format:",
    .terms = Endings,
    .options = kOptions,
    .exit_status =
        "0 written, 1 IN or a rank in it could not be read, OUT could not be "
        "written or already existed, 2 wrong usage.",
    .run = RunConvert};

}  // namespace stepscope
