#include "child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

extern char** environ;

namespace measure {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kShownLines = 12;
constexpr long kShownBytes = 4096;
// Of a run of seconds; the program's own clock measures, not this one.
constexpr std::chrono::milliseconds kPoll(5);

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// The last lines written to `file`, each indented; says if there are none.
std::string LastLines(std::FILE* file) {
  std::fseek(file, 0, SEEK_END);
  const long size = std::ftell(file);
  std::fseek(file, std::max(0L, size - kShownBytes), SEEK_SET);
  std::string text(kShownBytes, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  while (text.ends_with('\n')) text.pop_back();
  if (text.empty()) return "\n  (it printed nothing)";
  size_t begin = text.size();
  for (size_t lines = 0; lines < kShownLines && begin != 0; ++lines) {
    const size_t newline = text.rfind('\n', begin - 1);
    begin = newline == text.npos ? 0 : newline;
  }
  if (text[begin] == '\n') ++begin;
  std::string shown = "\n  ";
  for (char c : text.substr(begin)) {
    shown += c;
    if (c == '\n') shown += "  ";
  }
  return shown;
}

// The error number of what failed, 0 if nothing did.
int Spawn(const Command& command, int output, pid_t* child) {
  std::vector<char*> argv = {const_cast<char*>(command.program.c_str())};
  for (const std::string& argument : command.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (int error = posix_spawn_file_actions_init(&actions)) return error;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  const int error = posix_spawn(child, command.program.c_str(), &actions,
                                nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Waits until `child` has ended, and kills it first when `limit` is over.
// Returns whether it ended in time.
bool Await(pid_t child, std::chrono::seconds limit, int* state) {
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    const pid_t ended = ::waitpid(child, state, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    if (Clock::now() > deadline) {
      ::kill(child, SIGKILL);
      while (::waitpid(child, state, 0) < 0 && errno == EINTR) {
      }
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

std::string Command::Text() const {
  std::string text = program;
  for (const std::string& argument : arguments) text += " " + argument;
  return text;
}

absl::Status RunChild(const Command& command) {
  File output(std::tmpfile());
  if (!output) {
    return absl::UnavailableError(std::string("no temporary file: ") +
                                  std::strerror(errno));
  }
  pid_t child = -1;
  if (int error = Spawn(command, fileno(output.get()), &child)) {
    return absl::UnavailableError("cannot start " + command.program + ": " +
                                  std::strerror(error));
  }
  int state = 0;
  if (!Await(child, command.limit, &state)) {
    return absl::DeadlineExceededError(
        command.Text() + "\nwas stopped after " +
        std::to_string(command.limit.count()) +
        " s; it had printed:" + LastLines(output.get()));
  }
  if (WIFSIGNALED(state)) {
    return absl::AbortedError(command.Text() + "\nwas ended by signal " +
                              std::to_string(WTERMSIG(state)) + " (" +
                              strsignal(WTERMSIG(state)) +
                              "):" + LastLines(output.get()));
  }
  if (WEXITSTATUS(state) != 0) {
    return absl::AbortedError(command.Text() + "\nfailed with exit code " +
                              std::to_string(WEXITSTATUS(state)) + ":" +
                              LastLines(output.get()));
  }
  return absl::OkStatus();
}

bool ProgramFailed(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace measure
