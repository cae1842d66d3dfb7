// The --device option of every app.
#pragma once

#include <string>

#include "runtime/device.h"

namespace weft {

// Parses "cpu", "cuda" or "cuda:1". Of several ranks, which say "cuda", each gets a device of its
// own. Throws, listing the available devices, for other text and for a device that this build or
// this machine does not have.
Device device_named(const std::string& text);

// Waits until all queued work of the device is done. Call it before reading a clock.
void wait_for(Device device);

}  // namespace weft
