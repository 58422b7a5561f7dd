// TraceEquals: whether two Traces hold the same, whatever ids their names have.
#pragma once

#include <gtest/gtest.h>
#include <stepscope/trace.h>

namespace stepscope {

// Success if every table, link, name, fact of the run, watched kind and loss is
// the same; else a message that names the first difference. The `source` of
// both is ignored: it says where a copy was read from.
testing::AssertionResult TraceEquals(const Trace& a, const Trace& b);

}  // namespace stepscope
