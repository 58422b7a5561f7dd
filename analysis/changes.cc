#include "changes.h"

#include <algorithm>
#include <cmath>

#include "report/words.h"

namespace stepscope {

std::vector<std::string> ChangesInWords(const Edit& edit, size_t steps) {
  std::vector<std::string> words;
  // So many places in all steps, or once.
  const auto per_step = [&](size_t places, const char* one, const char* many) {
    const int64_t count =
        std::llround(static_cast<double>(places) / std::max<size_t>(steps, 1));
    if (places > 0) {
      words.push_back(Count(std::max<int64_t>(count, 1), one, many));
    }
  };
  if (edit.workers >= 0) words.push_back(Count(edit.workers, "loader worker"));
  if (edit.threads > 0) words.push_back(Count(edit.threads, "intra-op thread"));
  if (edit.batch != 1) words.push_back("batch x " + Times(edit.batch));
  if (edit.channels_last) words.push_back("channels-last weights");
  if (edit.drop_zero_grad) words.push_back("gradients set to None");
  if (edit.drop_unused_graph) words.push_back("no gradients in validation");
  if (edit.drop_anomaly) words.push_back("anomaly detection off");
  if (edit.fused_update >= 0) words.push_back("fused optimizer step");
  if (edit.dispatch_ns >= 0) words.push_back("compiled model");
  per_step(edit.no_wait.size(), "wait removed", "waits removed");
  per_step(edit.scales.size(), "device work faster or gone",
           "device works faster or gone");
  per_step(edit.side_stream.size(), "work on a stream of its own",
           "works on a stream of their own");
  per_step(edit.overlapped.size(), "collective overlapped",
           "collectives overlapped");
  per_step(edit.cuts.size(), "stretch of host code cut",
           "stretches of host code cut");
  return words;
}

int64_t BatchSize(const Trace& trace) {
  int64_t size = -1;
  for (const Loader& loader : trace.loaders()) {
    size = std::max<int64_t>(size, loader.batch_size);
  }
  return size;
}

std::vector<Setting> SettingsOf(const Edit& edit, int64_t batch_size) {
  std::vector<Setting> settings;
  if (edit.workers >= 0) {
    settings.push_back({"workers", int64_t{edit.workers}});
  }
  if (edit.threads > 0) {
    settings.push_back({"intra_op_threads", int64_t{edit.threads}});
  }
  if (edit.batch != 1 && batch_size > 0) {
    settings.push_back(
        {"batch_size", static_cast<int64_t>(std::llround(
                           edit.batch * static_cast<double>(batch_size)))});
  } else if (edit.batch != 1) {
    settings.push_back({"batch_factor", edit.batch});
  }
  if (edit.channels_last) {
    settings.push_back({"memory_format", std::string("channels_last")});
  }
  if (edit.drop_zero_grad) settings.push_back({"set_to_none", true});
  if (edit.drop_unused_graph) {
    settings.push_back({"validation_gradients", false});
  }
  if (edit.drop_anomaly) settings.push_back({"anomaly_mode", false});
  if (edit.fused_update >= 0) {
    settings.push_back({"optimizer_step", std::string("fused")});
  }
  if (edit.dispatch_ns >= 0) settings.push_back({"compiled", true});
  return settings;
}

}  // namespace stepscope
