#include "report/compare_words.h"

#include <algorithm>
#include <cmath>

#include "report/step_text.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

std::string SideText(const RunInfo& run, const StepSpread& spread) {
  std::string text = run.source.empty() ? run.name : run.source;
  if (spread.steps == 0) {
    text += "  no steps";
    // Without steps, mean_ms is the length of the recording, if it is known.
    if (spread.mean_ms <= 0) return text;
    return text + "; the whole recording takes " + Milliseconds(spread.mean_ms);
  }
  text += "  " + Count(spread.steps, "steady step") + ", median " +
          Milliseconds(spread.median_ms) + " (" + Number(spread.min_ms) +
          " to " + Number(spread.max_ms) + ", mean " + Number(spread.mean_ms) +
          ")";
  if (spread.batch_size > 0) {
    text += ", batch " + std::to_string(spread.batch_size);
  }
  return text;
}

// "3.81 ms faster per step (95 % interval 3.10 to 5.86): 18.3 to 14.5 ms,
// 1.3x". If the second run is slower, the ends of the interval are negated and
// swapped, so that they count in the direction of the word "slower".
std::string ChangeText(const Gain& gain, const char* interval, double before_ms,
                       double after_ms) {
  const bool slower = gain.expected_ms < 0;
  std::string text =
      Milliseconds(std::abs(gain.expected_ms)) +
      (slower ? " slower" : " faster") + " per step (" + interval + " " +
      Number(slower ? -gain.high_ms : gain.low_ms) + " to " +
      Number(slower ? -gain.low_ms : gain.high_ms) + "): " + Number(before_ms) +
      " to " + Milliseconds(after_ms);
  if (after_ms > 0) text += ", " + Factor(before_ms / after_ms);
  return text;
}

// Says which part of the measured change is `what`, of which a step of the
// first run has `before_ms` and one of the second `after_ms`; empty if both
// have about the same.
std::string PartText(const Comparison& c, const std::string& what,
                     double before_ms, double after_ms) {
  const double more = before_ms - after_ms;
  const double gained = c.measured.expected_ms;
  // Smaller differences are not worth a sentence.
  if (std::abs(more) <= kMentionedFrac * c.before.step_ms) return "";
  std::string text;
  // It changed in the opposite direction to the steps, or the steps did not
  // change. So it hides a part of the program's own change.
  if (more * gained <= 0) {
    text = Capitalised(what) + " hides a " + (more < 0 ? "gain" : "loss") +
           " of about " + Milliseconds(std::abs(more));
  } else if (std::abs(more) < std::abs(gained)) {
    text = "About " + Milliseconds(std::abs(more)) + " of that are " + what;
  } else {
    text = "All of that may be " + what;
  }
  const auto of = [](double ms) {
    return ms > 0 ? Milliseconds(ms) : std::string("none known");
  };
  return text + ": " + of(before_ms) + " per step in the first run, " +
         of(after_ms) + " in the second";
}

std::string RecordingCostText(const Comparison& c) {
  const std::string text = PartText(c, "recording cost", c.before.recording_ms,
                                    c.after.recording_ms * c.batch_scale);
  if (text.empty()) return "";
  return text +
         (c.before.recording_estimated || c.after.recording_estimated
              ? " (an estimate, good to a factor of 2)"
              : "") +
         ". Time both without the profiler.";
}

// The time that the training thread was ready to run but had no core depends on
// other programs, not on the change.
std::string ContentionText(const Comparison& c) {
  const auto row =
      std::ranges::find(c.causes, "contended", &ComparedTime::name);
  if (row == c.causes.end()) return "";
  const std::string text =
      PartText(c, "waiting for a free core", row->before_ms,
               row->after_ms * c.batch_scale);
  return text.empty() ? "" : text + ". Compare again on a quiet machine.";
}

// "h2d-pageable (at most 32.6 ms)" if the part of the prediction is known, else
// the id alone.
std::string WithPart(const Comparison& c, const std::string& id) {
  const auto part =
      std::ranges::find(c.predicted_parts, id, &PredictedPart::id);
  if (part == c.predicted_parts.end()) return id;
  return id + (part->kind == GainKind::kBound ? " (at most " : " (predicted ") +
         Milliseconds(part->expected_ms) + ")";
}

// `after_ms` is the measured step, normalised to the first batch size.
void AddPrediction(const Comparison& c, double after_ms,
                   std::vector<VerdictLine>& lines) {
  std::vector<std::string> gone;
  for (const auto* ids : {&c.resolved_findings, &c.reduced_findings}) {
    for (const std::string& id : *ids) gone.push_back(WithPart(c, id));
  }
  std::string made;
  if (!c.changed_settings.empty()) {
    made += "; changes: " + Listed(c.changed_settings);
  }
  if (!gone.empty()) made += "; findings gone or smaller: " + Listed(gone);
  made += ".";
  if (c.predicted_kind == GainKind::kBound) {
    const bool all = c.predicted.expected_ms >= c.before.step_ms;
    lines.push_back(
        {"predicted", "at most " + Milliseconds(c.predicted.expected_ms) +
                          " faster per step" +
                          (all ? ", which is the whole step" : "") + made});
    return;
  }
  // Relative to the first trace's step, like the measured change.
  const double predicted_ms = c.before.step_ms - c.predicted.expected_ms;
  lines.push_back(
      {"predicted",
       ChangeText(c.predicted, c.predicted.pairs > 0 ? "likely" : "roughly",
                  c.before.step_ms, predicted_ms) +
           made});
  if (after_ms <= 0) return;
  // If the intervals overlap, the measurement does not contradict the
  // prediction.
  const bool overlap = c.measured.high_ms >= c.predicted.low_ms &&
                       c.measured.low_ms <= c.predicted.high_ms;
  const double error = predicted_ms / after_ms - 1;
  lines.push_back({"", "The predicted step is " + Percent(std::abs(error)) +
                           (error < 0 ? " shorter" : " longer") +
                           " than the measured one. The measured interval " +
                           (overlap ? "overlaps" : "does not overlap") +
                           " the predicted range."});
}

void AddVerdict(const Comparison& c, std::vector<VerdictLine>& lines) {
  const double after_ms = c.after.step_ms * c.batch_scale;
  lines.push_back(
      {"measured",
       ChangeText(c.measured, "95 % interval", c.before.step_ms, after_ms) +
           (c.significant ? "." : "; no significant difference.")});
  if (c.slow_steps_count) {
    lines.push_back(
        {"",
         "Slow steps recur, so this compares the means of all steps "
         "but warm-up; the tables below leave slow steps out."});
  }
  for (const std::string& part : {RecordingCostText(c), ContentionText(c)}) {
    if (!part.empty()) lines.push_back({"", part});
  }
  // Said here, because the rows of all tables below are scaled, too.
  if (c.batch_normalised) {
    lines.push_back(
        {"", "The batch sizes differ: a step of the second trace has " +
                 Times(1 / c.batch_scale) +
                 " times the samples. Its times, here and below, are scaled to "
                 "the batch size of the first."});
  }
  if (!c.doubt.empty()) {
    lines.push_back({"doubt", "Are these runs of the same program? " +
                                  Capitalised(c.doubt) + "."});
  }
  if (c.predicted_kind != GainKind::kNone) {
    AddPrediction(c, after_ms, lines);
  } else if (!c.incomplete.empty()) {
    lines.push_back(
        {"predicted",
         "nothing, because no gains are claimed from an incomplete trace."});
  } else if (!c.doubt.empty()) {
    lines.push_back(
        {"predicted",
         "nothing, because the traces may not be of the same program."});
  } else if (c.changed_settings.empty()) {
    lines.push_back({"predicted",
                     "nothing: no finding of the first trace was resolved, and "
                     "no setting is known to differ."});
  } else {
    lines.push_back(
        {"predicted", "nothing for " + Listed(c.changed_settings) +
                          ": the first trace lacks the data to predict it."});
  }
}

}  // namespace

std::vector<ComparedTime> Normalised(std::vector<ComparedTime> rows,
                                     double scale) {
  for (ComparedTime& row : rows) {
    row.after_ms *= scale;
    row.after_calls *= scale;
  }
  // Scaling the times has changed the order of the rows.
  if (scale != 1) {
    std::ranges::stable_sort(rows, {}, [](const ComparedTime& row) {
      return -std::abs(row.after_ms - row.before_ms);
    });
  }
  return rows;
}

std::vector<VerdictLine> VerdictOf(const Comparison& c) {
  std::vector<VerdictLine> lines;
  // This line comes first, because it concerns everything after it.
  if (!c.incomplete.empty()) {
    lines.push_back({"doubt", Capitalised(c.incomplete) + "."});
  }
  lines.push_back({"before", SideText(c.before_run, c.before)});
  lines.push_back({"after", SideText(c.after_run, c.after)});
  if (c.why_not.empty()) {
    AddVerdict(c, lines);
  } else {
    lines.push_back({"", "The steps cannot be compared: " + c.why_not + "."});
  }
  return lines;
}

bool HasGpu(const Comparison& c) {
  return !c.kernels.empty() || !c.before_run.devices.empty();
}

}  // namespace stepscope
