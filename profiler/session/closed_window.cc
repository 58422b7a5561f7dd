// The part of a recording that runs on the background thread: ClosedWindow
// decodes the recordings of all collectors and builds the Trace. Session is the
// part on the training thread.
#include <stepscope/session.h>
#include <stepscope/trace_builder.h>

#include <exception>
#include <utility>

namespace stepscope {

ClosedWindow::ClosedWindow() = default;
ClosedWindow::~ClosedWindow() = default;

// Decodes the collectors in the order in which they started, and the session's
// own rows last, because a collector may know a better name of a thread than
// the system does.
void ClosedWindow::AddRecordings(TraceBuilder& builder, const ClockMap& clock) {
  // If one collector fails to decode, the rows of the others must be kept.
  const auto guard = [&](auto&& add) {
    const auto failed = [&](const char* what) {
      builder.Add(Loss{.name = "decode-failed",
                       .detail = std::string("a recording could not be "
                                             "decoded: ") +
                                 what + "; please report this",
                       .count = 1,
                       .severity = Severity::kError});
    };
    try {
      add();
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("unknown exception");
    }
  };
  static const SlotLog kNoSlots;
  const SlotLog& slots = events_ != nullptr ? events_->slots() : kNoSlots;
  // From the back, because the vector has the collector that stopped first at
  // the front, and collectors stop in reverse order of their start.
  while (!recordings_.empty()) {
    guard([&] { recordings_.back()->AddTo(builder, clock, slots); });
    recordings_.pop_back();  // free its memory before the next one decodes
  }
  if (events_ == nullptr) return;
  guard([&] { events_->AddTo(builder, clock); });
  events_.reset();
}

// Runs on the background thread, some time after the window closed. It uses
// only data that was copied into the ClosedWindow, and never asks for the
// present state of the process.
Trace ClosedWindow::Build(RunInfo run) {
  const ClockMap clock(clock_begin_, clock_end_);
  // The training thread always gets row 0.
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(pid_, tid_);
  run.pid = pid_;
  run.cycle = static_cast<int32_t>(cycle_);
  run.training_thread = thread;
  run.window_begin_ns = clock.ToNs(begin_);
  run.window_end_ns = clock.ToNs(end_);
  // Lengths of the steps before the window, timed with every collector off.
  // They show how long an unprofiled step takes.
  run.wait_step_ns = std::move(wait_step_ns_);
  run.clock_error_ns = clock.error_ns();
  // Warm-up steps are recorded too, so that one-time costs of the hooks do not
  // fall into an active step. Clipping drops the rows of warm-up steps.
  TraceBuilder::Options clip{.window_begin_ns = run.window_begin_ns,
                             .window_end_ns = run.window_end_ns};
  builder.run() = std::move(run);

  builder.Watch(Kind::kStep);
  for (const Mark& step : steps_) {
    builder.Add(Step{.begin_ns = clock.ToNs(step.begin),
                     .end_ns = clock.ToNs(step.end),
                     .number = step.number,
                     .thread = thread});
  }
  // Watch a kind only if its events could have been recorded. Without a
  // registered loader, an empty table would wrongly mean that nobody waited for
  // one.
  if (!loaders_.empty()) builder.Watch(Kind::kLoader);
  for (const LoaderFacts& loader : loaders_) {
    builder.Add(Loader{.name = builder.Intern(loader.name),
                       .kind = builder.Intern(loader.kind),
                       .workers = loader.workers,
                       .batch_size = loader.batch_size,
                       .pin_memory = loader.pin_memory,
                       .persistent_workers = loader.persistent_workers,
                       .prefetch_factor = loader.prefetch_factor});
  }
  for (Loss& loss : losses_) builder.Add(std::move(loss));
  AddRecordings(builder, clock);
  return builder.Build(clip);
}

}  // namespace stepscope
