// SPDX-License-Identifier: MIT
// Picture of a tail: takes what was measured and its fits, gives an SVG: the share of values beyond x, in powers of
// ten, over x; the measured steps, the three fits and the threshold of the stated rate.
#pragma once

#include <string>

#include "tools/calibrate/tail.h"

namespace sdcguard {

// title, note: plain text above and below the picture.
std::string tail_svg(const Exceedances& measured, const TailReport& report, const std::string& title,
                     const std::string& note);

}  // namespace sdcguard
