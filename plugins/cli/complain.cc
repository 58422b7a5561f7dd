#include "complain.h"

#include <cstdio>

namespace stepscope {

void Complain(std::string_view message) {
  std::fprintf(stderr, "stepscope: %.*s\n", static_cast<int>(message.size()),
               message.data());
}

void Complain(const absl::Status& status) {
  const auto message = status.message();
  Complain(std::string_view(message.data(), message.size()));
}

int UsageError(const absl::Status& status) {
  Complain(status);
  return 2;
}

}  // namespace stepscope
