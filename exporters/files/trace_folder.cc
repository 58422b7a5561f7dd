#include "files/trace_folder.h"

#include <absl/status/status.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "files/file_kind.h"
#include "files/folders.h"
#include "files/trace_peek.h"
#include "io/bytes_reader.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kXSpaceEnding = ".xplane.pb";
constexpr char kOtherName[] =
    ": its name does not end in .json, .json.gz or .json.zst";

// A file, and what its name and header say. Each step of the choice removes
// candidates and notes why.
struct Candidate {
  std::string path;
  std::string name;    // of the file
  std::string worker;  // the name without span and endings
  std::string span;    // the number before ".pt.trace.json"; may be empty
  TracePeek peek;
};

bool CutSuffix(std::string_view suffix, std::string_view* text) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

// Splits WORKER[.SPAN].pt.trace.json[.gz] or NAME.json[.gz], also with .zst.
// False for other names.
bool ParseName(Candidate* file) {
  std::string_view rest = file->name;
  const bool is_packed = CutSuffix(".gz", &rest) || CutSuffix(".zst", &rest);
  if (CutSuffix(".pt.trace.json", &rest)) {
    const size_t dot = rest.rfind('.');
    if (dot != std::string_view::npos && dot + 1 < rest.size() &&
        rest.find_first_not_of("0123456789", dot + 1) ==
            std::string_view::npos) {
      file->span = std::string(rest.substr(dot + 1));
      rest = rest.substr(0, dot);
    }
  } else if (!CutSuffix(".json", &rest) && !is_packed) {
    return false;
  }
  file->worker = std::string(rest);
  return !rest.empty();
}

// Compares spans as numbers: "9" before "10".
bool SpanBefore(const std::string& a, const std::string& b) {
  return std::make_tuple(a.size(), std::string_view(a)) <
         std::make_tuple(b.size(), std::string_view(b));
}

// The error of a file as a note that begins with its path:
// "/job/stats.json: it is not a trace: ...". What to do about it is left out,
// because the file was not asked for.
std::string NoteOf(const std::string& path, std::string_view why) {
  if (!why.starts_with(path + " ")) return path + ": " + std::string(why);
  why.remove_prefix(path.size() + 1);
  return path + ": it " + std::string(why.substr(0, why.find(". ")));
}

std::vector<Candidate> CandidatesIn(const std::string& folder,
                                    ResolvedRun* run) {
  std::vector<std::string>* const passed_over = &run->passed_over;
  const auto cannot_read = [&](const std::string& path, std::string why,
                               std::string note) {
    run->unreadable.push_back({path, std::move(why)});
    passed_over->push_back(std::move(note));
  };
  std::vector<std::string> others;  // their names say that they are no traces
  std::vector<Candidate> files;
  for (const auto& [name, kind] : PipesAndDevicesIn(folder)) {
    passed_over->push_back((fs::path(folder) / name).string() + ": it is " +
                           kind + "; give its path to read it");
  }
  for (const std::string& name : FilesIn(folder)) {
    Candidate file;
    file.path = (fs::path(folder) / name).string();
    file.name = name;
    if (name.ends_with(kTemporaryEnding)) {
      const std::string why = file.path +
                              ": it is incomplete (still being written, or its "
                              "writer was killed)";
      cannot_read(file.path, why, why);
      continue;
    }
    if (!ParseName(&file)) {
      // An XSpace may be taken later.
      if (name.ends_with(kXSpaceEnding)) {
        passed_over->push_back(file.path + kOtherName);
      } else {
        others.push_back(file.path);
      }
      continue;
    }
    absl::StatusOr<TracePeek> peek = PeekTrace(file.path);
    if (!peek.ok()) {
      std::string why(peek.status().message());
      std::string note = NoteOf(file.path, why);
      cannot_read(file.path, std::move(why), std::move(note));
      continue;
    }
    if (peek->is_timeline) {
      passed_over->push_back(file.path +
                             ": it is a timeline merged from several ranks");
      continue;
    }
    file.peek = *std::move(peek);
    files.push_back(std::move(file));
  }
  if (others.size() == 1) passed_over->push_back(others[0] + kOtherName);
  if (others.size() > 1) {
    passed_over->push_back(folder + ": " + std::to_string(others.size()) +
                           " files have other names, such as " +
                           fs::path(others[0]).filename().string());
  }
  return files;
}

// Keeps the files for which `keep` is true and notes why the others were
// skipped.
template <typename Keep, typename Why>
void Select(std::vector<Candidate>* files, ResolvedRun* run, Keep keep,
            Why why) {
  const auto rest = std::stable_partition(files->begin(), files->end(), keep);
  for (auto it = rest; it != files->end(); ++it)
    run->passed_over.push_back(it->path + ": " + why(*it));
  files->erase(rest, files->end());
}

// Our files have their cycle in the header. For files of torch.profiler the
// n-th span of a worker is cycle n.
void NumberCycles(std::vector<Candidate>* files) {
  std::map<std::string, std::vector<std::string>> spans;
  for (const Candidate& file : *files) {
    if (!file.peek.is_ours && !file.span.empty())
      spans[file.worker].push_back(file.span);
  }
  for (auto& [worker, list] : spans) {
    std::sort(list.begin(), list.end(), SpanBefore);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  for (Candidate& file : *files) {
    if (file.peek.is_ours) continue;
    file.peek.cycle = 0;
    const auto found = spans.find(file.worker);
    if (file.span.empty() || found == spans.end()) continue;
    file.peek.cycle = static_cast<int32_t>(
        std::find(found->second.begin(), found->second.end(), file.span) -
        found->second.begin());
  }
}

// Keeps the files of one cycle, because ranks of different windows cannot be
// compared.
void KeepOneCycle(int32_t cycle, std::vector<Candidate>* files,
                  ResolvedRun* run) {
  NumberCycles(files);
  std::set<int32_t> cycles;
  std::set<int32_t> cut;
  for (const Candidate& file : *files) {
    cycles.insert(file.peek.cycle);
    if (file.peek.is_cut) cut.insert(file.peek.cycle);
  }
  if (cycles.size() < 2 && cycle < 0) return;
  if (cycle < 0) {
    // The last cycle may still be being written; an earlier complete one is
    // better.
    const auto whole =
        std::find_if(cycles.rbegin(), cycles.rend(),
                     [&](int32_t each) { return !cut.contains(each); });
    cycle = whole != cycles.rend() ? *whole : *cycles.rbegin();
  }
  run->cycle = cycle;
  Select(
      files, run,
      [&](const Candidate& file) { return file.peek.cycle == cycle; },
      [](const Candidate& file) {
        const std::string number = std::to_string(file.peek.cycle);
        return "belongs to cycle " + number +
               (file.peek.is_cut ? " and is truncated" : "") +
               "; choose it with --cycle " + number;
      });
}

// Keeps one file per rank: preferably a complete one, then one in flavour
// kineto, which has the exact names. A rank may also have the same file both
// plain and compressed.
void KeepOnePerRank(std::vector<Candidate>* files, ResolvedRun* run) {
  std::stable_sort(files->begin(), files->end(),
                   [](const Candidate& a, const Candidate& b) {
                     return std::pair(a.peek.is_cut, a.peek.is_tb_flavour) <
                            std::pair(b.peek.is_cut, b.peek.is_tb_flavour);
                   });
  // Our files are told apart by run and rank, others by the worker in their
  // name.
  std::set<std::pair<std::string, int32_t>> ranks;
  std::set<std::pair<std::string, std::string>> workers;
  Select(
      files, run,
      [&](const Candidate& file) {
        const bool known = file.peek.is_ours && file.peek.rank >= 0;
        const bool first =
            !known || ranks.emplace(file.peek.run_id, file.peek.rank).second;
        return workers.emplace(file.worker, file.span).second && first;
      },
      [](const Candidate&) -> std::string {
        return "another file in the folder has the same rank";
      });
}

// Returns the XSpaces of the folder. Usually they are second copies of Chrome
// traces, but they have no rank by which to match these.
std::vector<std::string> SpacesIn(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : FilesIn(folder)) {
    if (!name.ends_with(kXSpaceEnding)) continue;
    const std::string path = (fs::path(folder) / name).string();
    const absl::StatusOr<std::unique_ptr<BytesReader>> bytes =
        BytesReader::Make(path);
    if (!bytes.ok()) continue;
    const absl::StatusOr<FileFormat> format = FormatOf(path, bytes->get());
    if (format.ok() && *format == FileFormat::kXSpace) paths.push_back(path);
  }
  return paths;
}

}  // namespace

void BoundNotes(const std::string& folder, std::vector<std::string>* notes) {
  // Nobody reads more notes, and a folder may hold a hundred thousand files.
  constexpr size_t kMostNotes = 20;
  if (notes->size() <= kMostNotes) return;
  const size_t more = notes->size() - kMostNotes;
  notes->resize(kMostNotes);
  notes->push_back(folder + ": " + std::to_string(more) + " more");
}

// Goes from all files to one per rank: reads the headers, chooses a cycle,
// chooses a file per rank, and sorts.
ResolvedRun TracesIn(const std::string& folder, int32_t cycle) {
  ResolvedRun run;
  std::vector<Candidate> files = CandidatesIn(folder, &run);
  KeepOneCycle(cycle, &files, &run);
  KeepOnePerRank(&files, &run);
  std::sort(files.begin(), files.end(),
            [](const Candidate& a, const Candidate& b) {
              return std::make_tuple(a.peek.rank, std::string_view(a.name)) <
                     std::make_tuple(b.peek.rank, std::string_view(b.name));
            });
  for (Candidate& file : files) run.trace_files.push_back(std::move(file.path));
  if (run.trace_files.empty()) {
    run.trace_files = SpacesIn(folder);
    const std::set<std::string, std::less<>> taken(run.trace_files.begin(),
                                                   run.trace_files.end());
    std::erase_if(run.unreadable, [&](const UnreadableFile& file) {
      return taken.contains(file.path);
    });
    std::erase_if(run.passed_over, [&](const std::string& note) {
      const size_t end = note.find(std::string(kXSpaceEnding) + ": ");
      return end != std::string::npos &&
             taken.contains(note.substr(0, end + kXSpaceEnding.size()));
    });
  }
  BoundNotes(folder, &run.passed_over);
  return run;
}

}  // namespace stepscope
