#include "support/shell.h"

#include <sys/wait.h>

#include <cstdlib>

namespace stepscope {
namespace {

// A shell that stays the parent of its command returns 128 + the signal.
int StatusOf(int waited) {
  if (WIFSIGNALED(waited)) return 1000 + WTERMSIG(waited);
  if (!WIFEXITED(waited)) return -1;
  const int code = WEXITSTATUS(waited);
  return code > 128 ? 1000 + code - 128 : code;
}

}  // namespace

Outcome RunShell(const std::string& command, const TempFolder& folder) {
  const std::string out = folder.At("out");
  const std::string err = folder.At("err");
  const int waited = std::system(
      (command + " >'" + out + "' 2>'" + err + "' </dev/null").c_str());
  return {StatusOf(waited), ReadBytes(out), ReadBytes(err)};
}

}  // namespace stepscope
