// LoaderWorkers: samples the workers that make batches for this process:
// threads that Batches registered, and child processes of Python's DataLoader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_samples.h"
#include "proc_file.h"

namespace stepscope {

// For a child process only the main thread counts, because a loader's worker
// runs there. Used by one thread. The files stay open between samples.
class LoaderWorkers {
 public:
  explicit LoaderWorkers(std::string root);

  // Appends a sample of every existing worker to `sample`.
  void Sample(HostSamples& samples, HostSample& sample);

 private:
  struct Worker {
    int64_t id = 0;
    bool is_process = false;
    bool is_worker = true;
    int sightings = 0;
    bool present = false;
    ProcFile schedstat;
    ProcFile io;
  };

  Worker& Seen(int64_t id, bool is_process);
  bool MakesBatches(int64_t pid) const;

  std::string root_;
  bool is_python_ = false;
  std::string command_;  // of this process
  ProcFile own_children_;
  ProcFile main_children_;  // of the main thread, if another thread records
  std::vector<Worker> workers_;
  std::string scratch_;
};

}  // namespace stepscope
