// Tests the store of LibTorch's process group as a RankExchange, with a real
// server.
#include <gtest/gtest.h>
#include <stepscope/store_exchange.h>

#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace stepscope::store_exchange_test {
namespace {

c10::intrusive_ptr<c10d::TCPStore> MakeServer() {
  c10d::TCPStoreOptions options;
  options.port = 0;  // any free port
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

c10::intrusive_ptr<c10d::TCPStore> MakeClient(const c10d::TCPStore& server) {
  c10d::TCPStoreOptions options;
  options.port = server.getPort();
  options.isServer = false;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

TEST(StoreExchangeTest, ARankReadsWhatAnotherHasPut) {
  const auto server = MakeServer();
  const auto client = MakeClient(*server);
  const auto rank_0 = MakeStoreExchange(*server);
  const auto rank_1 = MakeStoreExchange(*client);
  const auto nothing = rank_0->Get("window");
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->has_value());
  const std::string bytes("a\0b\xff", 4);
  ASSERT_TRUE(rank_1->Put("window", bytes).ok());
  // set() returns before the server has received the value.
  auto found = rank_0->Get("window");
  for (int i = 0; i < 10'000 && found.ok() && !found->has_value(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    found = rank_0->Get("window");
  }
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, bytes);
}

// Otherwise Put() would wait until the program's wait times out and throws.
TEST(StoreExchangeTest, AWaitOfTheProgramDoesNotHoldItUp) {
  const auto server = MakeServer();
  const auto exchange = MakeStoreExchange(*server);
  std::thread program(
      [&] { server->wait({"later"}, std::chrono::minutes(1)); });
  EXPECT_TRUE(exchange->Put("later", "now").ok());
  program.join();
}

TEST(StoreExchangeTest, AServerThatIsGoneIsAnError) {
  auto server = MakeServer();
  const auto exchange = MakeStoreExchange(*MakeClient(*server));
  server.reset();
  const absl::Status status = exchange->Get("window").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
}

}  // namespace
}  // namespace stepscope::store_exchange_test
