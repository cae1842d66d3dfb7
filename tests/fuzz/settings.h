// The settings that all trainings have, for targets that want some.
#pragma once

#include <string>
#include <type_traits>

#include "apps/command_line/settings.h"

namespace weft {

struct FuzzSettings : TrainingSettings {
  std::string preset;
};

template <class SomeSettings, class F>
requires std::is_base_of_v<FuzzSettings, SomeSettings>
void each_setting(SomeSettings& settings, const F& f) { each_training_setting(settings, f); }

}  // namespace weft
