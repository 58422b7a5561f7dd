#include <stepscope/logdir.h>
#include <stepscope/read.h>
#include <stepscope/summary.h>

#include <cstdio>
#include <vector>

#include "command_words.h"
#include "complain.h"
#include "output.h"
#include "trace_commands.h"

namespace stepscope {
namespace {

constexpr OptionName kInfoOptions[] = {{"--format"}, {"--output", true, "-o"}};
constexpr std::string_view kFormats[] = {"text", "json"};

constexpr const char* kInfoUsage =
    R"(Usage: stepscope info [options] PATH...

Says what is in a trace, without a judgement: rank, devices, steps, what the
GPUs did and for how long, copies, waits for batches, events by kind, and what
is missing. PATH is a trace file, a log directory of stepscope or a folder with
one trace per rank.

Options:
  --format text|json      form (text); json is one object, or a list of them
                          where there are several traces
  --output FILE, -o FILE  write it there instead of printing it
  --help, -h              this text

Exit status: 0 all were read, 1 one could not be, 2 wrong usage.
)";

std::string Indented(std::string object) {
  while (!object.empty() && object.back() == '\n') object.pop_back();
  return object;
}

}  // namespace

int InfoCommand(std::span<const std::string> words) {
  const absl::StatusOr<CommandWords> parsed =
      ParseCommandWords(words, kInfoOptions);
  if (!parsed.ok()) return UsageError(parsed.status());
  if (parsed->has("--help")) {
    std::fputs(kInfoUsage, stdout);
    return 0;
  }
  size_t format = 0;
  if (parsed->has("--format")) {
    const auto choice =
        ChoiceOf("--format", parsed->value("--format"), kFormats);
    if (!choice.ok()) return UsageError(choice.status());
    format = *choice;
  }
  if (parsed->paths.empty()) {
    return UsageError(absl::InvalidArgumentError(
        "info needs a trace: stepscope info PATH..."));
  }
  std::vector<std::string> texts;
  bool all_read = true;
  for (const std::string& path : parsed->paths) {
    absl::StatusOr<ResolvedRun> run = ResolvePath(path);
    if (!run.ok()) {
      Complain(run.status());
      all_read = false;
      continue;
    }
    for (const std::string& file : run->trace_files) {
      const absl::StatusOr<Trace> trace = ReadTrace(file);
      if (!trace.ok()) {
        Complain(trace.status());
        all_read = false;
        continue;
      }
      const TraceSummary summary = Summarize(*trace);
      texts.push_back(format == 1 ? Indented(ToJson(summary))
                                  : ToText(summary));
    }
  }
  if (texts.empty()) return 1;
  std::string out;
  const bool is_list = format == 1 && texts.size() > 1;
  for (const std::string& text : texts)
    out += (out.empty() ? "" : is_list ? ",\n" : "\n") + text;
  if (is_list) out = "[\n" + out + "\n]";
  if (format == 1) out += "\n";
  const absl::Status written = WriteOut(out, parsed->value("--output"));
  if (written.ok()) return all_read ? 0 : 1;
  Complain(written);
  return 1;
}

}  // namespace stepscope
