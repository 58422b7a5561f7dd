// ChromeLinks: the ids that link the events of a Chrome trace for readers that
// link by id: External ids, collectives, arrows.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "chrome/writer/chrome_flavour.h"

namespace stepscope {

class ChromeLinks {
 public:
  ChromeLinks(const Trace& trace, ChromeFlavour flavour);

  // Unique over all rows that have one.
  int64_t OfOp(RowId op) const { return 1 + static_cast<int64_t>(op); }
  int64_t OfRange(RowId range) const { return range_base_ + range; }
  int64_t OfCommunication(RowId row) const;

  // The External id of a call and of the activity it launched: that of its op,
  // or of the collective it is part of. 0 if there is neither.
  int64_t OfCall(RowId call) const;
  int64_t OfWork(const DeviceWork& work) const;

  // The communication whose args the event of this op carries, or kNone.
  RowId CommunicationOn(RowId op) const;
  // True if an op carries the args of this communication, which then needs no
  // event of its own.
  bool RidesOnOp(RowId communication) const {
    return op_under_[communication] != kNone;
  }
  // The communication around the start of a collective's range, or kNone.
  RowId CommunicationAround(const Range& range) const;

  bool CallLaunched(RowId call) const { return launched_[call]; }

 private:
  void FindCollectives(ChromeFlavour flavour);

  const Trace& trace_;
  int64_t range_base_;
  int64_t communication_base_;
  std::vector<RowId> op_under_;  // by communication
  std::vector<char> launched_;
  std::unordered_map<RowId, RowId> communication_on_op_;
  std::unordered_map<RowId, int64_t> collective_of_call_;
};

}  // namespace stepscope
