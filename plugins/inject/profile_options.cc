#include "profile_options.h"

#include "sources.h"

namespace stepscope {

ProfileOptions InjectedProfileOptions(const WindowOptions& options,
                                      int64_t training_tid) {
  ProfileOptions profile{.log_dir = options.log_dir, .name = options.name};
  // 0 for a step window, because its Profile is created by the training thread.
  profile.training_tid = training_tid;
  profile.print_report = options.print_report;
  return profile;
}

ProfileParts InjectedParts(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.collectors = [](const ProfileOptions& options) {
    return InjectedCollectors(options.training_tid);
  };
  return parts;
}

}  // namespace stepscope
