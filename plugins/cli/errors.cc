#include "errors.h"

#include <cstdio>

namespace stepscope {
namespace {

std::string_view MessageOf(const absl::Status& status) {
  const auto message = status.message();
  return {message.data(), message.size()};
}

}  // namespace

void PrintError(std::string_view message) {
  std::fprintf(stderr, "stepscope: %.*s\n", static_cast<int>(message.size()),
               message.data());
}

void PrintError(const absl::Status& status) { PrintError(MessageOf(status)); }

int UsageError(std::string_view message) {
  PrintError(message);
  return 2;
}

int UsageError(const absl::Status& status) {
  return UsageError(MessageOf(status));
}

}  // namespace stepscope
