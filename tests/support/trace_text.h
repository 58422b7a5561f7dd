// Traces as text with one line per row, in the form of the text exporter (see
// exporters/text/text_writer.h). Tests show their input, and goldens their
// output, in this form.
//
//   const Trace trace = TraceFromText(R"(
//     watch step op
//     step 0..1000 thread=0 number=3
//     op 100..200 thread=0 sequence=5 aten::add
//   )");
//
// Rows may come in any order. A thread without a line of its own gets pid 1 and
// tid K + 1. Kinds of rows that appear count as watched, besides those in a
// `watch` line.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>
#include <stepscope/trace_builder.h>

#include <string_view>

namespace stepscope {

// Errors: InvalidArgument with the line's number and what is wrong.
absl::StatusOr<Trace> ParseTraceText(std::string_view text,
                                     const TraceBuilder::Options& options = {});

// The same for tests with a correct text: an error fails the test, and the
// result is an empty Trace.
Trace TraceFromText(std::string_view text);

}  // namespace stepscope
