// The text form: one line per row, for tests and goldens.
//
//   run rank=0 usable_cores=2 resnet18
//   watch step op
//   thread 0 pid=1 tid=7 torch_thread=1 main
//   step 0..1000 thread=0 number=3
//   op 100..200 thread=0 sequence=5 inputs=(float[2,3],Scalar="1") aten::add
//   allocation 150 thread=0 address=64 bytes=4096
//
// A line is: the kind; the time (begin..end, or one moment); key=value with the
// fields of rows/row_fields.h that differ from their default; the name.
// A name or value is quoted and escaped as in JSON if it is empty, has a quote
// or a control character, or could be taken for something else. `thread=K` is
// the K-th row of threads(). Lists of numbers are separated by commas.
// inputs=(...) lists arguments: type, [dims], {strides}, ="value", (elements),
// without the parts that are empty. stack=(...) lists quoted frames.
// Empty lines and lines that start with # are ignored.
#pragma once

#include <stepscope/annotation.h>
#include <stepscope/trace.h>

#include <span>
#include <string>

namespace stepscope {

std::string ToTraceText(const Trace& trace,
                        std::span<const Annotation> annotations = {});

}  // namespace stepscope
