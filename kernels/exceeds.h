// SPDX-License-Identifier: MIT
// The comparison of every alarm: a NaN exceeds any limit. Named, so that a must-fail test can build a kernel with the
// comparison that lets NaN pass.
#pragma once

#ifndef SDCGUARD_EXCEEDS
#define SDCGUARD_EXCEEDS(value, limit) (!((value) <= (limit)))
#endif
