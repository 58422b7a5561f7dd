// LoaderWorkers: samples the workers that make batches for this process:
// threads that Batches registered, and child processes of Python's DataLoader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host_samples.h"
#include "proc_file.h"

namespace stepscope {

// Of a child process only the main thread counts: a loader's worker runs there.
// One thread uses it; its files stay open between samples.
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
  ProcFile main_children_;  // of the main thread, where another one records
  std::vector<Worker> workers_;
  std::string scratch_;
};

}  // namespace stepscope
