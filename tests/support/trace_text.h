// Traces written as text, one line per row: the form that the text exporter
// prints (exporters/text/text_writer.h describes it), so that a test shows
// its input and a golden its output.
//
//   const Trace trace = TraceFromText(R"(
//     watch step op
//     step 0..1000 thread=0 number=3
//     op 100..200 thread=0 sequence=5 aten::add
//   )");
//
// Rows may come in any order. A thread that has no line of its own is made up
// as pid 1, tid K + 1. Kinds of the rows that appear are watched, besides those
// of a `watch` line.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

#include <string_view>

namespace stepscope {

// Errors: InvalidArgument, with the number of the line and what is wrong in it.
absl::StatusOr<Trace> ParseTraceText(std::string_view text,
                                     const TraceBuilder::Options& options = {});

// The same for tests that know their text is right: a mistake in it fails the
// test, and an empty Trace comes back.
Trace TraceFromText(std::string_view text);

}  // namespace stepscope
