#include <stepscope/export.h>
#include <stepscope/page.h>
#include <stepscope/profile_parts.h>

#include <utility>

namespace stepscope {
namespace {

WindowFile TraceFile(Format format, std::string LogPaths::*path,
                     ExportOptions options = {}) {
  return {.write = [=](const WindowResult& result) {
    return WriteTrace(result.trace, ToAnnotations(result.report), format,
                      result.paths.*path, options);
  }};
}

absl::Status WriteFindings(const WindowResult& result) {
  return WriteText(ToJson(result.report), result.paths.advice);
}

absl::Status WritePage(const WindowResult& result) {
  return WriteText(ToHtml(result.report, result.page), result.paths.page);
}

absl::Status WriteReport(const WindowResult& result) {
  const TextOptions plain{
      .details_path =
          result.job != nullptr ? result.paths.job_report : result.paths.advice,
      .view_command = "tensorboard --logdir " + result.log_dir};
  return WriteText(ToText(ReportToShow(result.report, result.job), plain),
                   result.paths.report);
}

absl::Status WriteJobReport(const WindowResult& result) {
  return WriteText(ToJson(*result.job), result.paths.job_report);
}

absl::Status WriteJobPage(const WindowResult& result) {
  return WriteText(ToHtml(*result.job, result.page), result.paths.job_page);
}

}  // namespace

ProfileParts ProfileOutputs(const ProfileOptions& options) {
  ProfileParts parts;
  parts.analyze = [](const Trace& trace, PageDetails* page) {
    return Analyze(trace, page);
  };
  parts.digest = [](const Trace& trace, PageDetails* page) {
    return DigestRank(trace, page);
  };
  parts.to_text = [](const Report& report, const TextOptions& options) {
    return ToText(report, options);
  };
  parts.files.push_back({.of_report = true, .write = &WriteFindings});
  parts.files.push_back(
      {.rank_0_only = true, .of_report = true, .write = &WriteReport});
  parts.files.push_back({.of_job = true, .write = &WriteJobReport});
  if (options.write_page) {
    parts.files.push_back({.of_report = true, .write = &WritePage});
    parts.files.push_back({.of_job = true, .write = &WriteJobPage});
  }
  if (options.write_chrome_kineto) {
    parts.files.push_back(
        TraceFile(Format::kChromeKineto, &LogPaths::chrome_kineto));
  }
  if (options.write_xspace) {
    parts.files.push_back(TraceFile(Format::kXSpace, &LogPaths::xspace,
                                    {.input_wait = options.xspace_input_wait}));
  }
  if (options.write_chrome_tb) {
    parts.files.push_back(TraceFile(Format::kChromeTb, &LogPaths::chrome_tb));
  }
  return parts;
}

}  // namespace stepscope
