#include "io/errno_status.h"

#include <cerrno>
#include <system_error>

namespace stepscope {
namespace {

struct Advice {
  absl::StatusCode code;
  const char* todo;
};

Advice AdviceFor(int error_number) {
  switch (error_number) {
    case EACCES:
    case EPERM:
    case EROFS:
      return {absl::StatusCode::kPermissionDenied,
              "choose a folder that this user may write to"};
    case ENOENT:
      return {absl::StatusCode::kNotFound, "create the folder first"};
    case EISDIR:
      return {absl::StatusCode::kInvalidArgument, "name a file in it"};
    case ENOTDIR:
    case ENAMETOOLONG:
      return {absl::StatusCode::kInvalidArgument, "choose another path"};
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return {absl::StatusCode::kResourceExhausted,
              "free some space or choose another disk"};
    default:
      return {absl::StatusCode::kUnavailable, "check the disk and try again"};
  }
}

}  // namespace

absl::Status FileError(const std::string& what, const std::string& path,
                       int error_number) {
  const Advice advice = AdviceFor(error_number);
  return absl::Status(
      advice.code, "cannot " + what + " '" + path +
                       "': " + std::generic_category().message(error_number) +
                       "; " + advice.todo);
}

}  // namespace stepscope
