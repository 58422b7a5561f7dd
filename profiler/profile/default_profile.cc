// The Profile constructor with the default collectors, analysis and files.
#include <stepscope/collectors.h>
#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>

#include <utility>

namespace stepscope {
namespace {

ProfileParts DefaultParts(const ProfileOptions& options) {
  ProfileParts parts = ProfileOutputs(options);
  parts.collectors = [](const ProfileOptions& options) {
    return DefaultCollectors({.record_shapes = options.record_shapes,
                              .record_memory = options.profile_memory,
                              .with_stack = options.with_stack,
                              .with_modules = options.with_modules,
                              .module_hook = options.module_hook});
  };
  return parts;
}

}  // namespace

Profile::Profile(ProfileOptions options) noexcept
    : Profile(std::move(options), &DefaultParts) {}

}  // namespace stepscope
