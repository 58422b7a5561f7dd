#include <dlfcn.h>
#include <stepscope/run_identity.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace stepscope {
namespace {

std::string TextOf(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

int32_t NumberOf(const Environment& environment, const char* name) {
  const std::string text = TextOf(environment, name);
  int32_t value = -1;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// Describes a RANK and WORLD_SIZE that make no sense together. A program
// without a launcher has neither, which is no problem.
std::string ProblemOf(const Environment& environment, int32_t world_size) {
  const auto shown = [&](const char* name) {
    const std::string text = TextOf(environment, name);
    return text.empty() ? std::string(name) + " is not set"
                        : std::string(name) + "=" + text;
  };
  const bool has_rank = !TextOf(environment, "RANK").empty();
  if (!has_rank && world_size <= 1) return "";
  return shown("RANK") + " and " + shown("WORLD_SIZE") +
         " name no rank of a job, so this process is recorded as rank 0 of 1";
}

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return "localhost";
  }
  return name.data();
}

std::string TimeText(int64_t seconds) {
  const time_t time = seconds;
  tm parts{};
  localtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y_%m_%d_%H_%M_%S", &parts);
  return text.data();
}

}  // namespace

RunIdentity IdentityFrom(const Environment& environment) {
  RunIdentity identity;
  identity.host = HostName();
  identity.start_s = time(nullptr);
  identity.start = TimeText(identity.start_s);
  const int32_t rank = NumberOf(environment, "RANK");
  const int32_t world_size = NumberOf(environment, "WORLD_SIZE");
  // If the rank is impossible, the process counts as one that runs alone.
  if (rank < 0 || world_size < 1 || rank >= world_size) {
    identity.problem = ProblemOf(environment, world_size);
    return identity;
  }

  identity.rank = rank;
  identity.world_size = world_size;
  const int32_t local = NumberOf(environment, "LOCAL_WORLD_SIZE");
  identity.local_ranks = local >= 1 ? local : world_size == 1 ? 1 : -1;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                           "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"}) {
    identity.job += TextOf(environment, name) + "/";
  }
  return identity;
}

RunIdentity OwnIdentity() {
  return IdentityFrom([](const char* name) { return std::getenv(name); });
}

std::string ProgramLanguage() {
  // Part of Python's stable ABI. A LibTorch program may have loaded libpython
  // without ever starting the interpreter.
  using IsInitialized = int (*)();
  const auto is_initialized =
      reinterpret_cast<IsInitialized>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  if (is_initialized == nullptr) {
    // The first call returns the message of the failure, and the second one
    // frees it. Else LeakSanitizer finds it if the process ends while this
    // thread, which nobody waits for, is ending, too.
    (void)dlerror();
    (void)dlerror();
    return "c++";
  }
  return is_initialized() != 0 ? "python" : "c++";
}

}  // namespace stepscope
