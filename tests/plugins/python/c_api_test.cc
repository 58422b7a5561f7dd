// Calls the C interface with null pointers, numbers that are not handles, and
// closed handles. Each call must return an error with a message and not crash.
#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hook_exchange.h"
#include "stepscope_c.h"
#include "support/temp_folder.h"

namespace stepscope::c_api_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kNoHandles[] = {
    0, 1, 12345, UINT64_MAX, uint64_t{1} << 32, uint64_t{2} << 32};

// Returns the text of a job or of its error.
std::string Call(const char* name, const char* request, int expected) {
  char* result = nullptr;
  const int code = stepscope_call(name, request, &result);
  EXPECT_EQ(code, expected) << stepscope_last_error();
  EXPECT_EQ(result == nullptr, code < 0);
  std::string text = result == nullptr ? stepscope_last_error() : result;
  stepscope_free(result);
  return text;
}

TEST(CApi, SaysItsVersions) {
  EXPECT_EQ(stepscope_abi_version(), STEPSCOPE_ABI_VERSION);
  EXPECT_EQ(Call("version", nullptr, STEPSCOPE_OK), stepscope_version());
  EXPECT_THAT(stepscope_shim_id(), HasSubstr(stepscope_version()));
}

TEST(CApi, JobsRefuseNullAndNonsense) {
  EXPECT_EQ(stepscope_call("version", "{}", nullptr), STEPSCOPE_E_ARGUMENT);
  EXPECT_THAT(Call(nullptr, "{}", STEPSCOPE_E_ARGUMENT), HasSubstr("null"));
  EXPECT_THAT(Call("analyse", "{}", STEPSCOPE_E_ARGUMENT),
              HasSubstr("no job is called 'analyse'"));
  EXPECT_THAT(Call("analyze", "[1", STEPSCOPE_E_ARGUMENT),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(Call("analyze", "{}", STEPSCOPE_E_ARGUMENT),
              HasSubstr("needs a trace"));
  EXPECT_THAT(Call("analyze", R"({"pahts": ["x"]})", STEPSCOPE_E_ARGUMENT),
              HasSubstr("unknown key 'pahts'"));
  EXPECT_THAT(Call("analyze", R"({"paths": "x"})", STEPSCOPE_E_ARGUMENT),
              HasSubstr("paths must be a list of strings"));
  EXPECT_THAT(
      Call("analyze", R"({"paths": ["x"], "format": "pdf"})",
           STEPSCOPE_E_ARGUMENT),
      HasSubstr("format must be text, json, markdown or html, not 'pdf'"));
  stepscope_free(nullptr);
}

TEST(CApi, JobsSayWhichFileIsMissing) {
  EXPECT_THAT(
      Call("analyze", R"({"paths": ["/no/such.json"]})", STEPSCOPE_E_FAILED),
      HasSubstr("/no/such.json"));
  EXPECT_THAT(
      Call("compare", R"({"a": "/no/a", "b": "/no/b"})", STEPSCOPE_E_FAILED),
      HasSubstr("/no/a"));
  EXPECT_THAT(Call("what_if", R"({"path": "x", "changes": {"wrokers": 2}})",
                   STEPSCOPE_E_ARGUMENT),
              HasSubstr("did you mean 'workers'?"));
}

// Returns the value of `key` in an answer.
std::string TextIn(const std::string& json, std::string_view key) {
  simdjson::dom::parser parser;
  std::string_view text;
  EXPECT_FALSE(parser.parse(json)[key].get(text)) << json;
  return std::string(text);
}

TEST(CApi, DigestsOfRanksMergeIntoTheReportOfTheirFolder) {
  const std::string folder = STEPSCOPE_TEST_DATA "/traces/dlrm_v100_8ranks";
  const std::string asked = R"({"path": ")" + folder + R"("})";
  const std::string found = Call("traces", asked.c_str(), STEPSCOPE_OK);
  simdjson::dom::parser parser;
  const TempFolder temporary;
  std::string digests;
  for (const std::string_view path : parser.parse(found)["traces"]) {
    const std::string request = R"({"path": ")" + std::string(path) + R"("})";
    const std::string answer = Call("digest", request.c_str(), STEPSCOPE_OK);
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(TextIn(answer, "digest"), &bytes));
    const std::string name = std::to_string(digests.size()) + ".pb";
    digests +=
        (digests.empty() ? "\"" : ", \"") + temporary.Write(name, bytes) + "\"";
  }
  const auto merge = [&](const std::string& more) {
    return R"({"digests": [)" + digests + "]" + more + "}";
  };
  const std::string all = R"({"paths": [")" + folder + R"("]})";
  const std::string whole = Call("analyze", all.c_str(), STEPSCOPE_OK);
  EXPECT_THAT(whole, HasSubstr("\"ranks\""));
  const std::string where = R"(, "where": ")" + folder + "\"";
  EXPECT_EQ(Call("merge", merge(where).c_str(), STEPSCOPE_OK), whole);
  EXPECT_THAT(
      whole, HasSubstr("ranks 2, 3, 4, 5, 6 and 7 have no trace in " + folder));
  EXPECT_THAT(
      Call("merge",
           merge(where + R"(, "unreadable": {"/x/rank3.json": "why"})").c_str(),
           STEPSCOPE_OK),
      AllOf(HasSubstr("rank 3 has no trace that can be read: why"),
            HasSubstr("ranks 2, 4, 5, 6 and 7 have no trace in ")));
  // Without a folder, missing ranks cannot be known.
  EXPECT_THAT(Call("merge", merge("").c_str(), STEPSCOPE_OK),
              Not(HasSubstr("missing-rank")));
  // A single rank is a report. Two files of one rank are not a job.
  digests = digests.substr(0, digests.find(','));
  EXPECT_THAT(Call("merge", merge("").c_str(), STEPSCOPE_OK),
              HasSubstr("\"rank\": 0"));
  digests += ", " + digests;
  EXPECT_THAT(Call("merge", merge("").c_str(), STEPSCOPE_E_FAILED),
              HasSubstr("not the ranks of one run: two traces belong to rank "
                        "0"));
}

TEST(CApi, ADigestKeepsTheNameThatTheCallerGivesItsTrace) {
  const std::string path =
      STEPSCOPE_TEST_DATA "/traces/dlrm_v100_8ranks/rank1.json.gz";
  const std::string request =
      R"({"path": ")" + path + R"(", "source": "s3://bucket/rank1.json.gz"})";
  const std::string answer = Call("digest", request.c_str(), STEPSCOPE_OK);
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(TextIn(answer, "digest"), &bytes));
  EXPECT_THAT(bytes, HasSubstr("s3://bucket/rank1.json.gz"));
  EXPECT_THAT(bytes, Not(HasSubstr(path)));
}

TEST(CApi, DamagedDigestsAreNamed) {
  const TempFolder temporary;
  const std::string path = temporary.Write("rank0.pb", "no digest");
  EXPECT_THAT(Call("merge", (R"({"digests": [")" + path + R"("]})").c_str(),
                   STEPSCOPE_E_ARGUMENT),
              HasSubstr(path + " is no digest"));
  EXPECT_THAT(
      Call("merge", R"({"digests": ["/no/such.pb"]})", STEPSCOPE_E_FAILED),
      HasSubstr("cannot read /no/such.pb"));
  EXPECT_THAT(Call("merge", "{}", STEPSCOPE_E_ARGUMENT),
              HasSubstr("at least one digest"));
  EXPECT_THAT(
      Call("digest", R"({"path": "/no/such.json"})", STEPSCOPE_E_FAILED),
      HasSubstr("/no/such.json"));
  EXPECT_THAT(Call("traces", R"({"path": "/no/such"})", STEPSCOPE_E_FAILED),
              HasSubstr("/no/such"));
}

TEST(CApi, ProfilesRefuseNull) {
  EXPECT_EQ(stepscope_profile_start("{}", nullptr, nullptr),
            STEPSCOPE_E_ARGUMENT);
  char* text = nullptr;
  EXPECT_EQ(stepscope_profile_report(1, 0, nullptr, &text),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_profile_report(1, 0, "json", nullptr),
            STEPSCOPE_E_ARGUMENT);
}

TEST(CApi, AModuleHookHasBothFunctionsOrNone) {
  const stepscope_open_calls open_calls = [](void*, uint64_t*, int32_t) {
    return 0;
  };
  const stepscope_describe describe = [](void*, uint64_t, char*, int32_t) {
    return 0;
  };
  EXPECT_EQ(stepscope_module_hook(open_calls, nullptr, nullptr),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_THAT(stepscope_last_error(), HasSubstr("describe is null"));
  EXPECT_EQ(stepscope_module_hook(nullptr, describe, nullptr),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_module_hook(open_calls, describe, nullptr), STEPSCOPE_OK);
  EXPECT_EQ(stepscope_module_hook(nullptr, nullptr, nullptr), STEPSCOPE_OK);
}

TEST(CApi, TheFunctionsOfAStoreComeTogether) {
  const stepscope_put put = [](void*, const char*, const void*, int64_t) {
    return int64_t{0};
  };
  const stepscope_get get = [](void*, const char*, void*, int64_t) {
    return int64_t{STEPSCOPE_STORE_EMPTY};
  };
  EXPECT_EQ(stepscope_exchange(put, nullptr, nullptr), STEPSCOPE_E_ARGUMENT);
  EXPECT_THAT(stepscope_last_error(), HasSubstr("get is null"));
  EXPECT_EQ(stepscope_exchange(nullptr, get, nullptr), STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_exchange(put, get, nullptr), STEPSCOPE_OK);
  EXPECT_EQ(stepscope_exchange(nullptr, nullptr, nullptr), STEPSCOPE_OK);
}

// A store that is read with two calls: first the length of a value, then the
// value.
struct HookStore {
  std::string value = std::string("a\0b", 3);
  int64_t says = 0;  // length to return instead, if not 0
};

TEST(CApi, AStoreIsReachedThroughItsFunctionsUntilItIsClosed) {
  HookStore store;
  HookExchange exchange(
      {.put = [](void* user, const char*, const void* value,
                 int64_t size) -> int64_t {
         auto* const to = static_cast<HookStore*>(user);
         if (to->says != 0) return to->says;
         to->value.assign(static_cast<const char*>(value),
                          static_cast<size_t>(size));
         return 0;
       },
       .get = [](void* user, const char*, void* value,
                 int64_t capacity) -> int64_t {
         const auto* const from = static_cast<const HookStore*>(user);
         if (from->says != 0) return from->says;
         const auto size = static_cast<int64_t>(from->value.size());
         if (capacity >= size)
           std::memcpy(value, from->value.data(), from->value.size());
         return size;
       },
       .user = &store});
  EXPECT_EQ(**exchange.Get("key"), store.value);
  EXPECT_TRUE(exchange.Put("key", "other").ok());
  EXPECT_EQ(**exchange.Get("key"), "other");
  store.says = STEPSCOPE_STORE_EMPTY;
  EXPECT_FALSE(exchange.Get("key")->has_value());
  for (const auto& [says, code] :
       {std::pair(int64_t{STEPSCOPE_STORE_NONE},
                  absl::StatusCode::kFailedPrecondition),
        std::pair(int64_t{STEPSCOPE_STORE_FAILED},
                  absl::StatusCode::kUnavailable),
        std::pair(int64_t{1} << 40, absl::StatusCode::kInvalidArgument)}) {
    store.says = says;
    EXPECT_EQ(exchange.Get("key").status().code(), code);
  }
  store.says = 0;
  exchange.Close(std::chrono::milliseconds(1));
  EXPECT_EQ(exchange.Get("key").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(exchange.Put("key", "v").code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CApi, NumbersThatAreNoHandleAreErrors) {
  for (const uint64_t handle : kNoHandles) {
    char* text = nullptr;
    EXPECT_EQ(stepscope_profile_begin_step(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_profile_step(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_profile_finish(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_profile_ending(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_profile_windows(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_profile_report(handle, 0, "json", &text),
              STEPSCOPE_E_HANDLE);
    EXPECT_EQ(text, nullptr);
    EXPECT_EQ(stepscope_profile_close(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_loader_wait(handle), STEPSCOPE_E_HANDLE);
    EXPECT_EQ(stepscope_loader_remove(handle), STEPSCOPE_E_HANDLE);
    EXPECT_THAT(stepscope_last_error(), HasSubstr("not the handle of an open"));
    if (handle != 0) {
      EXPECT_EQ(stepscope_range_close(handle), STEPSCOPE_E_HANDLE);
    }
  }
  EXPECT_EQ(stepscope_range_close(0), STEPSCOPE_OK);  // no window is open
}

TEST(CApi, RangesOutsideAWindowAreNothing) {
  uint64_t range = 7;
  EXPECT_EQ(*stepscope_window(), 0u);
  EXPECT_EQ(
      stepscope_range_open(STEPSCOPE_RANGE_USER, "augment", nullptr, &range),
      STEPSCOPE_OK);
  EXPECT_EQ(range, 0u);
  EXPECT_EQ(stepscope_range_open(STEPSCOPE_RANGE_USER, nullptr, "", &range),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_range_open(STEPSCOPE_RANGE_USER, "x", "", nullptr),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_range_open(3, "x", "", &range), STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_range_open(-1, "x", "", &range), STEPSCOPE_E_ARGUMENT);
}

TEST(CApi, LoadersRefuseNonsenseAndForget) {
  uint64_t loader = 7;
  EXPECT_EQ(stepscope_loader_add(nullptr, &loader), STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_loader_add("{}", nullptr), STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(stepscope_loader_add(R"({"worker": 2})", &loader),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_EQ(loader, 0u);
  EXPECT_EQ(stepscope_loader_add(R"({"pin_memory": "yes"})", &loader),
            STEPSCOPE_E_ARGUMENT);
  EXPECT_THAT(stepscope_last_error(), HasSubstr("pin_memory must be a whole"));
  ASSERT_EQ(stepscope_loader_add(R"({"name": "train", "workers": 2,
                                     "pin_memory": 1, "prefetch_factor": 4,
                                     "persistent_workers": 0})",
                                 &loader),
            STEPSCOPE_OK);
  EXPECT_EQ(stepscope_profile_step(loader), STEPSCOPE_E_HANDLE);
  EXPECT_EQ(stepscope_loader_wait(loader), STEPSCOPE_OK);
  EXPECT_EQ(stepscope_loader_remove(loader), STEPSCOPE_OK);
  EXPECT_EQ(stepscope_loader_wait(loader), STEPSCOPE_E_HANDLE);
  EXPECT_EQ(stepscope_loader_remove(loader), STEPSCOPE_E_HANDLE);
}

TEST(CApi, ErrorsAreTheThreadsOwn) {
  ASSERT_EQ(stepscope_profile_step(5), STEPSCOPE_E_HANDLE);
  const std::string mine = stepscope_last_error();
  std::string theirs = "not asked";
  std::thread([&] { theirs = stepscope_last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_EQ(stepscope_last_error(), mine);
}

}  // namespace
}  // namespace stepscope::c_api_test
