#include "loader_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/loaders.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace stepscope::loader_workers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kPython("/usr/bin/python3\0train.py", 25);

// A fake machine with this process and made-up children.
class LoaderWorkersTest : public ::testing::Test {
 protected:
  void Self(const std::string& command) {
    machine_.Write("proc/self/cmdline", command);
  }
  void Children(const std::string& list) {
    machine_.Write("proc/thread-self/children", list);
  }
  void Child(int pid, const std::string& comm, const std::string& command) {
    const std::string folder = "proc/" + std::to_string(pid) + "/";
    machine_.Write(folder + "comm", comm + "\n");
    machine_.Write(folder + "cmdline", command);
    machine_.Write(folder + "schedstat", "100 2 3\n");
    machine_.Write(folder + "io", "read_bytes: 1\n");
  }
  std::vector<int64_t> Ids(LoaderWorkers& workers) {
    HostSamples samples;
    HostSample sample;
    workers.Sample(samples, sample);
    EXPECT_EQ(sample.worker_count, samples.workers.size());
    known_ = sample.children_known;
    std::vector<int64_t> ids;
    for (const WorkerSample& worker : samples.workers) ids.push_back(worker.id);
    return ids;
  }
  std::string root() const { return machine_.path().string(); }

  TempFolder machine_;
  bool known_ = false;
};

TEST_F(LoaderWorkersTest, AWorkerOfPythonsLoaderSaysItsName) {
  Self("./train");
  Children("501 502 ");
  Child(501, "pt_data_worker", "./train");
  Child(502, "tensorboard", "./train");
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), ElementsAre(501));
  EXPECT_TRUE(known_);
}

TEST_F(LoaderWorkersTest, AForkOfThisPythonProcessIsAWorkerAndAToolIsNot) {
  Self(kPython);
  Children("501 502 503 504");
  Child(501, "python3", kPython);
  Child(
      502, "python3",
      "/usr/bin/python3 -c from multiprocessing.resource_tracker import main");
  Child(503, "python3",
        "/usr/bin/python3 -c from multiprocessing.spawn import spawn_main");
  Child(504, "nvidia-smi", "nvidia-smi");
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), ElementsAre(501, 503));
}

TEST_F(LoaderWorkersTest, AChildSeenBeforeItsExecIsDroppedAtTheSecondLook) {
  Self(kPython);
  Children("501");
  Child(501, "python3", kPython);
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), ElementsAre(501));
  Child(501, "git", "git status");
  EXPECT_THAT(Ids(workers), IsEmpty());
}

TEST_F(LoaderWorkersTest, AChildOfAProgramThatIsNotPythonIsNoWorker) {
  Self("./train");
  Children("501");
  Child(501, "train", "./train");
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), IsEmpty());
}

TEST_F(LoaderWorkersTest, AWorkerThatEndedIsGone) {
  Self("./train");
  Children("501 502");
  Child(501, "pt_data_worker", "");
  Child(502, "pt_data_worker", "");
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), ElementsAre(501, 502));
  Children("502    ");
  EXPECT_THAT(Ids(workers), ElementsAre(502));
}

TEST_F(LoaderWorkersTest, WithoutAListChildrenAreUnknown) {
  Self("./train");
  LoaderWorkers workers(root());
  EXPECT_THAT(Ids(workers), IsEmpty());
  EXPECT_FALSE(known_);
}

TEST_F(LoaderWorkersTest, ThreadsOfRegisteredLoadersAreWorkers) {
  const int64_t tid = gettid();
  const LoaderRegistration loader({"train", "threads", 1, 8, {tid}});
  LoaderWorkers workers("");
  HostSamples samples;
  HostSample sample;
  workers.Sample(samples, sample);
  ASSERT_GE(samples.workers.size(), 1u);
  EXPECT_EQ(samples.workers[0].id, tid);
  EXPECT_FALSE(samples.workers[0].is_process);
  EXPECT_GT(NumberAt(samples.at(samples.workers[0].schedstat), 0), 0);
}

}  // namespace
}  // namespace stepscope::loader_workers_test
