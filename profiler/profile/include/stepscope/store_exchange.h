// A RankExchange that uses the store of LibTorch's process group.
//
//   auto store = c10::make_intrusive<c10d::TCPStore>(address, options);
//   stepscope::Profile profile(
//       {.exchange = stepscope::MakeStoreExchange(*store)});
//
// Compiled by the including program, with its LibTorch, so that stepscope's own
// libraries do not need a distributed LibTorch.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <stepscope/rank_exchange.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace stepscope {

class StoreExchange final : public RankExchange {
 public:
  explicit StoreExchange(c10::intrusive_ptr<c10d::Store> store)
      : store_(std::move(store)) {}

  absl::Status Put(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, value);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return Failed(error);
    }
  }

  // Uses check() first, because get() would wait for a key that does not exist.
  absl::StatusOr<std::optional<std::string>> Get(
      const std::string& key) override {
    try {
      if (!store_->check({key})) return std::nullopt;
      const std::vector<uint8_t> bytes = store_->get(key);
      return std::string(bytes.begin(), bytes.end());
    } catch (const std::exception& error) {
      return Failed(error);
    }
  }

 private:
  // Drops the stack that LibTorch appends to the message.
  static absl::Status Failed(const std::exception& error) {
    const std::string text = error.what();
    return absl::UnavailableError(text.substr(0, text.find('\n')));
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

// Uses a separate client (Store::clone). With a shared client, a call of the
// program that waits on `store` would block this exchange, and the reverse.
inline std::shared_ptr<RankExchange> MakeStoreExchange(c10d::Store& store) {
  return std::make_shared<StoreExchange>(store.clone());
}

}  // namespace stepscope
