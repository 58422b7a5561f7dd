// ChromeRows: the pid and tid on which each event of a Chrome trace is drawn.
//
// Host threads keep their numbers unless a viewer would misread them. Each GPU
// is a process, numbered by its ordinal, with one thread per stream.
// Annotations have their own process. Slices that would cross others go to an
// extra tid. The first use of a row writes its metadata events (name, order).
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chrome/writer/chrome_rank_place.h"
#include "rows/event_order.h"

namespace stepscope {

struct ChromePlace {
  int64_t pid = 0;
  int64_t tid = 0;
  bool displaced = false;  // not on its thread's own tid
};

class ChromeRows {
 public:
  // Metadata events are appended to `out` as ",\n{...}".
  ChromeRows(const Trace& trace, std::string* out,
             const ChromeRankPlace& place = {});

  // Returns the pid and tid that a thread of the Trace has in the file.
  std::pair<int64_t, int64_t> FileThread(RowId thread) const {
    return {threads_[thread].pid, threads_[thread].tids[0]};
  }

  ChromePlace OnThread(RowId thread, int64_t begin_ns, int64_t end_ns);
  ChromePlace OnStream(int32_t device, int64_t stream, int64_t begin_ns,
                       int64_t end_ns);
  ChromePlace OnSyncRow(int32_t device, int64_t stream, int64_t begin_ns,
                        int64_t end_ns);
  // A row of the process "stepscope".
  ChromePlace OnOwnRow(const std::string& name, int64_t begin_ns,
                       int64_t end_ns);

  // Writes the first event of the file, without the comma that precedes all
  // others.
  void WriteFirst();

 private:
  struct Row {
    int64_t pid = 0;
    std::vector<int64_t> tids;  // one per lane; 0 until it is drawn
    std::string name;
    int64_t sort_index = 0;
    Lanes lanes;
  };

  // Returns the number that process `pid` of the Trace has in the file.
  int64_t FilePid(int64_t pid);
  ChromePlace PlaceOn(Row& row, int64_t begin_ns, int64_t end_ns);
  Row& StreamRow(int32_t device, int64_t stream, bool is_sync);
  int64_t UnusedTid(int64_t pid, int64_t wanted);
  // `pid` is the number in the file.
  void AnnounceProcess(int64_t pid, std::string name, std::string_view label,
                       int64_t sort_index);
  void Announce(const Row& row, size_t lane);
  void Meta(int64_t pid, int64_t tid, const char* what, const char* key,
            std::string_view text);

  const Trace& trace_;
  std::string& out_;
  const std::string rank_name_;
  const int64_t first_pid_;
  std::map<int64_t, int64_t> file_pids_;  // empty if pids stay as they are
  std::vector<Row> threads_;  // as in threads(); the last one takes kNone
  std::vector<char> announced_;
  std::map<std::pair<int32_t, int64_t>, Row> streams_;
  std::map<std::pair<int32_t, int64_t>, Row> sync_rows_;
  std::map<std::string, Row> own_rows_;
  std::set<int64_t> processes_;
  std::set<std::pair<int64_t, int64_t>> used_tids_;
  std::map<int64_t, int64_t> next_extra_;  // extra tid to try, by pid
};

}  // namespace stepscope
