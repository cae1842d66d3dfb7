// The option --device of every app.
#pragma once

#include <string>

#include "runtime/device.h"

namespace weft {

// "cpu", "cuda" or "cuda:1". Throws, saying what there is, where the text names no device, or one
// that this build or this machine does not have.
Device device_named(const std::string& text);

// Until all that was asked of the device is done: times end there.
void wait_for(Device device);

}  // namespace weft
