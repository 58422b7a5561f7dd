#include "loader_workers.h"

#include <stepscope/loaders.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace stepscope {
namespace {

// More workers than any sensible loader has.
constexpr size_t kMaxThreads = 256;

TextSpan CopyOf(const ProcFile& file, std::string& text) {
  TextSpan span;
  span.begin = static_cast<uint32_t>(text.size());
  file.AppendRecord(text, 256);
  span.end = static_cast<uint32_t>(text.size());
  return span;
}

// Returns true if the program is Python. Its name is the first of the
// zero-terminated words.
bool IsPython(const std::string& command) {
  const std::string program = command.substr(0, command.find('\0'));
  return program.substr(program.find_last_of('/') + 1).starts_with("python");
}

}  // namespace

LoaderWorkers::LoaderWorkers(std::string root)
    : root_(std::move(root)),
      command_(ReadSmallFile(root_ + "/proc/self/cmdline")),
      own_children_(root_ + "/proc/thread-self/children") {
  if (gettid() != getpid()) {
    main_children_ = ProcFile(root_ + "/proc/self/task/" +
                              std::to_string(getpid()) + "/children");
  }
  is_python_ = IsPython(command_);
}

// A child process is a worker if its name says so (recent torch names its
// workers), if it is a fork of this Python process, or if multiprocessing
// spawned it. Tools that the job started, and multiprocessing's resource
// tracker, are not workers.
bool LoaderWorkers::MakesBatches(int64_t pid) const {
  const std::string folder = root_ + "/proc/" + std::to_string(pid);
  if (ReadSmallFile(folder + "/comm").starts_with("pt_data_worker")) {
    return true;
  }
  if (!is_python_) return false;
  const std::string command = ReadSmallFile(folder + "/cmdline");
  return (command == command_ ||
          command.find("multiprocessing.spawn") != std::string::npos) &&
         !command.empty();
}

LoaderWorkers::Worker& LoaderWorkers::Seen(int64_t id, bool is_process) {
  auto found =
      std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.id == id && worker.is_process == is_process;
      });
  if (found == workers_.end()) {
    const std::string folder = root_ +
                               (is_process ? "/proc/" : "/proc/self/task/") +
                               std::to_string(id);
    Worker worker;
    worker.id = id;
    worker.is_process = is_process;
    worker.schedstat = ProcFile(folder + "/schedstat");
    worker.io = ProcFile(folder + "/io");
    workers_.push_back(std::move(worker));
    found = workers_.end() - 1;
  }
  found->present = true;
  // Checked twice, because between fork and exec a child looks like its parent.
  if (is_process && found->sightings < 2) {
    found->is_worker = MakesBatches(id);
    ++found->sightings;
  }
  return *found;
}

void LoaderWorkers::Sample(HostSamples& samples, HostSample& sample) {
  for (Worker& worker : workers_) worker.present = false;
  std::array<int64_t, kMaxThreads> tids;
  const size_t threads = std::min(LoaderThreads(tids), tids.size());
  for (size_t i = 0; i < threads; ++i) Seen(tids[i], false);

  // The kernel lists children by the thread that started them. A DataLoader
  // starts its workers on the thread that iterates, which may not be the main
  // thread.
  scratch_.clear();
  sample.children_known = own_children_.is_open();
  own_children_.AppendTo(scratch_);
  scratch_ += ' ';
  main_children_.AppendTo(scratch_);
  for (int n = 0;; ++n) {
    const int64_t pid = NumberAt(scratch_, n);
    if (pid < 0) break;
    Seen(pid, true);
  }

  std::erase_if(workers_, [](const Worker& worker) { return !worker.present; });
  sample.first_worker = static_cast<uint32_t>(samples.workers.size());
  for (const Worker& worker : workers_) {
    if (!worker.is_worker) continue;
    WorkerSample& copy = samples.workers.emplace_back();
    copy.id = worker.id;
    copy.is_process = worker.is_process;
    copy.schedstat = CopyOf(worker.schedstat, samples.text);
    copy.io = CopyOf(worker.io, samples.text);
  }
  sample.worker_count =
      static_cast<uint32_t>(samples.workers.size()) - sample.first_worker;
}

}  // namespace stepscope
