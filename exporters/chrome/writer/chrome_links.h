// ChromeLinks: the ids by which readers link the events of a Chrome trace
// (External ids), and which op carries the args of a collective.
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

  // External ids, unique over all ops, ranges and communications.
  int64_t OfOp(RowId op) const { return 1 + static_cast<int64_t>(op); }
  int64_t OfRange(RowId range) const { return range_base_ + range; }
  int64_t OfCommunication(RowId row) const;

  // Both return the External id of a call or activity: that of the collective
  // it is part of, else that of its op, else 0.
  int64_t OfCall(RowId call) const;
  int64_t OfWork(const DeviceWork& work) const;

  // Returns the communication whose args this op's event carries, or kNone.
  RowId CommunicationOn(RowId op) const;
  // True if an op carries the args of this communication, which then needs no
  // event of its own.
  bool RidesOnOp(RowId communication) const {
    return op_under_[communication] != kNone;
  }
  // Returns the communication that was open on the range's thread when the
  // range started, or kNone.
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
