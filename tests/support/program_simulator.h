// A simulator of training programs. Its results are the truth that tests
// compare the analysis with.
//
// A program is a small text: a machine, and then what one step does. A run
// returns for each rank the Trace that a live recording or a Kineto file would
// contain, and the exact mean step. Running the edited program shows what a fix
// really gains. The simulator shares no code with the replay, and it has
// effects that the replay does not model: kernels that slow each other down, a
// bounded launch queue, batches delivered in order, threads that change cores,
// cold devices, clocks that disagree, and fresh jitter for every seed.
//
// Machine, one directive per line (all except `step` are optional):
//   cores 8                        of each rank
//   others 2                       busy threads of other programs on the cores
//   intra_op 4 serial=0.05         threads of the pool; share of a parallel op
//                                  that runs on one thread only
//   gpu A100 pcie=24 pageable=6 latency=3us queue=1024 cc=8.0 sms=108
//            bandwidth=2039        rates in GB/s; without it a CPU-only run
//            memory=80GB count=2   number of GPUs that one process uses
//            between=900ns         idle time between two kernels of a stream
//            clock=1980            MHz; recorded together with the bandwidth
//   throttle 0.2 after=2 reasons=4 rank=1
//            kernels take longer by this share from recorded step `after` on;
//            samples give the reasons (CUPTI's bits)
//   allocator used=60GB reserved=70GB stuck=8GB growth=1GB retries=2
//            what the allocator's samples say, once per step
//   ranks 4 network=80 latency=25us hosts=2
//   group tp 0,1 2,3 described=mesh_tp   ranks that communicate
//   loader workers=2 cpu=30ms io=2ms name=train batch=64
//   steps 6 warmup=4               recorded steps, and steps before them
//   recorder live|kineto [sync] [cost=1us] [lose=0.1] [drop=5]   cost: per
//            recorded op; lose: a share of calls; drop: a counted loss
//   jitter host=0.03 device=0.01 loader=0.05 clock=0.3us
//   set tf32_cublas 0              a field of Settings (live recordings)
//   define NAME { ... }            statements that `do NAME` runs
//   step { ... }
//
// Statements (T is a duration, B a size; 1us, 2.5ms, 4KiB, 19MB):
//   load                           takes a batch
//   host T                         code between ops
//   io T                           the thread sleeps
//   op NAME T [grad] [parallel] [in=float[8x3],long[4],-,'True'] { ... }
//                                  T is its own host time; `parallel` computes
//                                  on the pool; `grad` records an autograd node
//   backward { ... }               on the autograd thread, while this one waits
//   node NAME T [retain] [sum=float[8x3]] [in=...] { ... }   visits the
//                                  youngest node not yet visited; retain: the
//                                  next pass visits it, too; sum: the engine
//                                  adds the gradient to another one of this
//                                  size in 20us
//   accumulate T [in=...] { ... }  an AccumulateGrad node
//   range KIND NAME [detail=Conv2d] { ... }   user phase loader optimizer
//                                  module collective nvtx
//   kernel NAME T [stream=7] [fill=1] [grid=64x1x1] [block=256] [waves=4]
//                                  fill: the share of the device it can use;
//                                  waves: blocks per SM
//       [occupancy=0.5] [registers=96] [shared=48KiB]   as recorded
//                                  device=1: one of several devices (also for
//                                  copies and events)
//   copy h2d|d2h|d2d B [pageable|pinned] [async] [stream=7]
//   memset B [stream=7]
//   graph [stream=7] { kernels }   one launch
//   record EVENT [stream=7]        cudaEventRecord
//   wait EVENT [stream=7]          cudaStreamWaitEvent
//   sync device|stream|EVENT [stream=7]
//   item [pageable]                .item(): reads one number back
//   call NAME T                    a runtime call that takes T
//   delay T [stream=7]             a host function in the stream: the stream
//                                  waits, and no recorder sees the reason
//   cuda_free T                    waits for the device, then takes T
//   collective NAME B [stream=20] [dtype=Float] [unsized] [group=tp] [rate=80]
//                                  every rank (of the group) takes part;
//                                  unsized: its size is not recorded
//   send RANK B [group=pp]; recv RANK B [group=pp]   a message of two ranks
//   join                           the compute stream waits for collectives
//   gc T; overhead NAME T          Python's collector; the driver's own time
//   memory B                       an allocation (negative: a release)
//   no_grad { }                    ops inside record no autograd nodes
//   repeat N { } every N [offset=K] { } rank R { } do NAME
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

struct SimulatorOptions {
  uint64_t seed = 1;
  int steps = -1;      // recorded steps; -1: as in the program
  bool record = true;  // false: computes only the mean step
};

struct ProgramRun {
  std::vector<Trace> ranks;  // by rank
  double mean_step_ms = 0;   // rank 0's recorded steps by the exact clock
};

// Runs a program. InvalidArgument names the line of an error.
absl::StatusOr<ProgramRun> RunProgram(std::string_view text,
                                      const SimulatorOptions& options);

// The same for tests with a correct text: an error fails the test, and the
// result has one empty rank.
ProgramRun MustRunProgram(std::string_view text,
                          const SimulatorOptions& options = {});

}  // namespace stepscope
