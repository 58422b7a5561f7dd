// TraceEquals: compares the contents of two Traces; the IDs of their names may
// differ.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/trace.h>

namespace stepscope {

// Returns success if every table, link, name, fact of the run, watched kind and
// loss is equal; else a message that names the first difference. `source` is
// ignored, because it says where a copy was read from.
testing::AssertionResult TraceEquals(const Trace& a, const Trace& b);

}  // namespace stepscope
