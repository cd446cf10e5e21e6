// What `sluice convert` found and did, as text and as JSON.
#pragma once

#include <optional>
#include <string>

#include "convert/convert.h"
#include "measure/calibration.h"
#include "measure/log_likelihood.h"
#include "measure/sensitivity.h"

namespace sluice::cli {

// What was measured on the texts of --calibrate and --perplexity.
struct Measured {
  measure::Calibration calibration;
  measure::MeasuredSensitivity sensitivity;
  std::string unmeasured;  // why sensitivities could not be measured; "" if they could
  std::optional<measure::Scored> before, after;  // on the text of --perplexity
};

void print_report(const convert::Report& report, const Measured& measured);
void print_report_json(const convert::Report& report, const Measured& measured);

}  // namespace sluice::cli
